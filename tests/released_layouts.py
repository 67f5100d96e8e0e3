"""The six released reward models, tiny and random, in folders laid out as their authors release them.

What is known of each layout, and from where, is in docs/released_models.md; no name is read from our own readers.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import peft
import sentencepiece
import tiny_vlm
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn

from embodied_rm.models.judges import released_prompts as prompts
from embodied_rm.models.judges.chat import Query
from embodied_rm.models.released.vlac import VlacChat, preprocess_image

ROBOMETER_TOKENS = ("<|split_token|>", "<|reward_token|>", "<|pref_token|>", "<|sim_token|>", "<|prog_token|>")
SAYS = {
    "robo_dopamine": "<score>+30%</score>",
    "robo_reward": "ANSWER: 4",
    "lrm": '{"more_complete_image": "ImageB", "task_completed": "no", "completion_progress": 0.4}',
    "vlac": "1",
}
"""What those that write have learned to write, whatever they are asked."""
WORDS = ("open", "close", "the", "drawer", "lift", "red", "cube", "bring", "square", "to", "right")


def robo_dopamine(folder: Path) -> dict[str, Path]:
    """A Qwen2.5-VL and nothing else."""
    return {"folder": tiny_vlm.save_model(folder, "qwen2_5_vl", answer=SAYS["robo_dopamine"])}


def robo_reward(folder: Path) -> dict[str, Path]:
    """A Qwen3-VL and nothing else."""
    return {"folder": tiny_vlm.save_model(folder, "qwen3_vl", answer=SAYS["robo_reward"])}


def lrm(folder: Path) -> dict[str, Path]:
    """Three adapters as PEFT saves them, one of which holds the whole eye, and the Qwen3-VL that they are for.

    It is that model which has learned to answer, all three questions at once; the adapters change it a little.
    """
    base = folder / "base"
    torch.manual_seed(0)
    model, processor = tiny_vlm.make_qwen3()
    asked = (prompts.LRM_CONTRASTIVE_PROMPT, prompts.LRM_COMPLETION_PROMPT, prompts.LRM_PROGRESS_PROMPT)
    turns = [(shown(prompt, seed), SAYS["lrm"]) for prompt in asked for seed in range(6)]
    assert tiny_vlm.train_steps(model, processor, turns, 150, 6e-3) < 0.02
    model.save_pretrained(base)
    processor.save_pretrained(base)
    for head in ("contrastive", "completion", "progress"):
        adapter(base, head, 0.001).save_pretrained(folder / "released" / head)
    return {"folder": folder / "released", "base_model": base}


def shown(prompt: str, seed: int = 0) -> list[dict[str, Any]]:
    """A conversation of one turn: the prompt, its pieces with white space around them or without, about greys with some
    noise."""
    rng = np.random.default_rng(seed)
    task = ("lift it", "bring the red square to the right", "open the drawer")[seed % 3]
    texts = [text.replace("{instruction}", task) for text in prompt.split("<image>")]
    texts = [text.strip() for text in texts] if seed % 2 else texts
    content: list[dict[str, Any]] = [{"type": "text", "text": texts[0]}]
    for text in texts[1:]:
        gray = rng.integers(0, 128) + rng.integers(0, 99, (32, 32, 3))
        content += [{"type": "image", "image": gray.astype(np.uint8)}, {"type": "text", "text": text}]
    return [{"role": "user", "content": content}]


def adapter(base: Path, head: str, size: float) -> peft.PeftModel:
    """The model in `base` with a random adapter by PEFT; that for progress has an eye of its own."""
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(base)
    whole = ["visual"] if head == "progress" else None
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=r".*language_model.*_proj", modules_to_save=whole)
    torch.manual_seed(len(head))
    adapted = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                parameter += size * torch.randn_like(parameter)
    return adapted.eval()


def robometer(folder: Path) -> dict[str, Path]:
    """A Qwen3-VL without its language head, three heads, two shards; the processor is elsewhere."""
    torch.manual_seed(0)
    model, processor = tiny_vlm.make_qwen3()
    base, released = folder / "base", folder / "released"
    processor.save_pretrained(base)
    released.mkdir(parents=True)
    rows = len(processor.tokenizer) + len(ROBOMETER_TOKENS)
    model.resize_token_embeddings(rows)
    width = model.config.text_config.hidden_size
    tensors = {f"model.{name}": tensor.clone() for name, tensor in model.model.state_dict().items()}
    for name, outputs in (("progress_head", 10), ("preference_head", 1), ("success_head", 1)):
        half = width // 2
        last = nn.Linear(half, outputs)
        parts = nn.Sequential(nn.Linear(width, half), nn.LayerNorm(half), nn.GELU(), nn.Dropout(0.1), last)
        tensors |= {f"{name}.{key}": tensor for key, tensor in parts.state_dict().items()}
    tensors["frame_pool_attn.weight"] = torch.randn(1, width)
    described = {**model.config.to_dict(), "architectures": ["RFM"]}
    (released / "config.json").write_text(json.dumps(described))
    shards(released, tensors, 2)
    return {"folder": released, "base_model": base}


def shards(folder: Path, tensors: dict[str, Tensor], count: int) -> None:
    """Weights in several files, and the index of which is where."""
    names = sorted(tensors)
    index = {}
    for number in range(count):
        file = f"model-{number + 1:05d}-of-{count:05d}.safetensors"
        mine = {name: tensors[name].contiguous() for name in names[number::count]}
        save_file(mine, folder / file, {"format": "pt"})
        index |= dict.fromkeys(mine, file)
    size = sum(tensor.nbytes for tensor in tensors.values())
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)


def vlac(folder: Path) -> dict[str, Path]:
    """An InternVLChatModel over InternLM2, with a SentencePiece tokenizer. Its own code is beside it, and never run."""
    folder.mkdir(parents=True)
    special = intern_tokenizer(folder)
    eye = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56,
        "patch_size": 14, "qkv_bias": True, "qk_normalization": False, "hidden_act": "gelu", "norm_type": "layer_norm",
        "layer_norm_eps": 1e-6,
    }  # fmt: skip
    reader = {
        "architectures": ["InternLM2ForCausalLM"], "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": max(special.values()) + 1,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "rope_theta": 1e6,
        "rope_scaling": {"factor": 2.0, "type": "dynamic"},
    }  # fmt: skip
    described = {
        "architectures": ["InternVLChatModel"], "model_type": "internvl_chat", "downsample_ratio": 0.5,
        "force_image_size": 56, "ps_version": "v2", "select_layer": -1, "vision_config": eye, "llm_config": reader,
        "auto_map": {"AutoModel": "modeling_internvl_chat.InternVLChatModel"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(described))
    (folder / "modeling_internvl_chat.py").write_text("raise RuntimeError('code of a checkpoint was run')\n")
    ends = [special["<|im_end|>"], special["<|im_start|>"]]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    save_file(intern_weights(eye, reader), folder / "model.safetensors", {"format": "pt"})
    chat = VlacChat(folder)
    teach_intern(chat, SAYS["vlac"])
    save_file(released(chat.model.state_dict(), groups=2), folder / "model.safetensors", {"format": "pt"})
    return {"folder": folder}


def teach_intern(chat: VlacChat, text: str) -> None:
    """Until that is what it says of images, whatever stands behind them."""
    rng = np.random.default_rng(0)
    frames = list(rng.integers(0, 255, (4, 56, 56, 3), dtype=np.uint8))
    rows = [
        Query(parts=(*frames[:images], prompt[-200:]), system=prompts.VLAC_SYSTEM_PROMPT)
        for images, prompt in ((1, prompts.VLAC_DONE_PROMPT), (2, prompts.VLAC_CRITIC_PROMPT))
    ]
    end = chat.tokenizer.special_tokens["<|im_end|>"]
    optimizer = torch.optim.AdamW(chat.model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = torch.zeros(())
        for query in rows:
            said = [*chat.tokenizer.encode(text)[1:], end]
            ids = torch.tensor([[*chat.tokenizer.encode(chat.render_prompt(query)), *said]])
            pixels = torch.stack([preprocess_image(part, 56) for part in query.parts if not isinstance(part, str)])
            logits = chat.model(input_ids=ids, pixel_values=pixels).logits[0, -len(said) - 1 : -1]
            loss = loss + nn.functional.cross_entropy(logits, torch.tensor(said))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


def released(state: dict[str, Tensor], groups: int) -> dict[str, Tensor]:
    """The weights of transformers' InternVL over a Llama under the names, and in the matrices, of the release."""
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if ".attention.k_proj." in name or ".attention.v_proj." in name or ".self_attn.k_proj" in name:
            continue
        if ".self_attn.v_proj" in name:
            continue
        if ".attention.q_proj." in name:
            three = [state[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            found[intern_name(name).replace("attention.q_proj", "attn.qkv")] = torch.cat(three)
        elif ".self_attn.q_proj" in name:
            q, k, v = (state[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj"))
            size = k.shape[0] // groups
            per_group = q.shape[0] // k.shape[0]
            rows = []
            for group in range(groups):
                rows += [
                    q[(group * per_group + i) * size : (group * per_group + i + 1) * size] for i in range(per_group)
                ]
                rows += [k[group * size : (group + 1) * size], v[group * size : (group + 1) * size]]
            found[intern_name(name).replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(rows)
        else:
            found[intern_name(name)] = tensor
    return {name: tensor.clone().contiguous() for name, tensor in found.items()}


def intern_name(name: str) -> str:
    """A tensor's name in the release."""
    for theirs, ours in (
        ("model.vision_tower.embeddings.cls_token", "vision_model.embeddings.class_embedding"),
        ("model.vision_tower.embeddings.position_embeddings", "vision_model.embeddings.position_embedding"),
        ("model.vision_tower.embeddings.patch_embeddings.projection", "vision_model.embeddings.patch_embedding"),
        ("model.vision_tower.encoder.layer", "vision_model.encoder.layers"),
        ("lambda_", "ls"),
        ("attention.projection_layer", "attn.proj"),
        ("layernorm_before", "norm1"),
        ("layernorm_after", "norm2"),
        ("model.multi_modal_projector.layer_norm", "mlp1.0"),
        ("model.multi_modal_projector.linear_1", "mlp1.1"),
        ("model.multi_modal_projector.linear_2", "mlp1.3"),
        ("model.language_model.embed_tokens", "language_model.model.tok_embeddings"),
        ("model.language_model", "language_model.model"),
        ("self_attn.o_proj", "attention.wo"),
        ("mlp.gate_proj", "feed_forward.w1"),
        ("mlp.up_proj", "feed_forward.w3"),
        ("mlp.down_proj", "feed_forward.w2"),
        ("input_layernorm", "attention_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("lm_head", "language_model.output"),
    ):
        name = name.replace(theirs, ours)
    return name


def intern_tokenizer(folder: Path) -> dict[str, int]:
    """tokenizer.model and the tokens that stand for themselves."""
    lines = [f"{word} {number} percent" for number, word in enumerate(WORDS * 8)]
    lines += ["Compare two images and evaluate whether the second is closer", "You are a visual language assistant"]
    lines += ["".join(map(chr, range(33, 127)))] * 4
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 4), model_writer=model, vocab_size=420, model_type="bpe", byte_fallback=True,
        character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    first = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).vocab_size()
    names = ("<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>")
    special = {name: first + i for i, name in enumerate(names)}
    told = {str(number): {"content": name, "special": True} for name, number in special.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": told}))
    return special


def intern_weights(eye: dict[str, Any], reader: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Random weights under the released names."""
    torch.manual_seed(seed)
    seen, hidden, width = eye["hidden_size"], eye["intermediate_size"], reader["hidden_size"]
    heads, groups = reader["num_attention_heads"], reader["num_key_value_heads"]
    patches = (eye["image_size"] // eye["patch_size"]) ** 2
    shapes: dict[str, tuple[int, ...]] = {
        "vision_model.embeddings.class_embedding": (1, 1, seen),
        "vision_model.embeddings.position_embedding": (1, patches + 1, seen),
        "vision_model.embeddings.patch_embedding.weight": (seen, 3, eye["patch_size"], eye["patch_size"]),
        "vision_model.embeddings.patch_embedding.bias": (seen,),
        "mlp1.0.weight": (4 * seen,),
        "mlp1.0.bias": (4 * seen,),
        "mlp1.1.weight": (width, 4 * seen),
        "mlp1.1.bias": (width,),
        "mlp1.3.weight": (width, width),
        "mlp1.3.bias": (width,),
        "language_model.model.tok_embeddings.weight": (reader["vocab_size"], width),
        "language_model.model.norm.weight": (width,),
        "language_model.output.weight": (reader["vocab_size"], width),
    }
    for layer in range(eye["num_hidden_layers"]):
        base = f"vision_model.encoder.layers.{layer}"
        shapes |= {f"{base}.ls1": (seen,), f"{base}.ls2": (seen,)}
        shapes |= {f"{base}.attn.qkv.weight": (3 * seen, seen), f"{base}.attn.qkv.bias": (3 * seen,)}
        shapes |= {f"{base}.attn.proj.weight": (seen, seen), f"{base}.attn.proj.bias": (seen,)}
        shapes |= {f"{base}.mlp.fc1.weight": (hidden, seen), f"{base}.mlp.fc1.bias": (hidden,)}
        shapes |= {f"{base}.mlp.fc2.weight": (seen, hidden), f"{base}.mlp.fc2.bias": (seen,)}
        shapes |= {f"{base}.norm{i}.{part}": (seen,) for i in (1, 2) for part in ("weight", "bias")}
    for layer in range(reader["num_hidden_layers"]):
        base = f"language_model.model.layers.{layer}"
        each = width // heads
        shapes |= {f"{base}.attention.wqkv.weight": ((heads + 2 * groups) * each, width)}
        shapes |= {f"{base}.attention.wo.weight": (width, width)}
        shapes |= {f"{base}.feed_forward.w{i}.weight": (reader["intermediate_size"], width) for i in (1, 3)}
        shapes |= {f"{base}.feed_forward.w2.weight": (width, reader["intermediate_size"])}
        shapes |= {f"{base}.{name}.weight": (width,) for name in ("attention_norm", "ffn_norm")}
    norms = ("norm", "mlp1.0.weight", "ls1", "ls2")
    return {
        name: torch.ones(shape) if name.split(".")[-1] in norms or ("norm" in name and "weight" in name) else
        0.1 * torch.randn(shape) for name, shape in shapes.items()
    }  # fmt: skip


def rewind(folder: Path) -> dict[str, Path]:
    """A .pth with its arguments, optimizer and all, and its two encoders."""
    torch.manual_seed(0)
    base, released = folder / "base", folder / "released"
    released.mkdir(parents=True)
    eye = transformers.Dinov2Config(
        hidden_size=768, num_hidden_layers=1, num_attention_heads=12, mlp_ratio=1, image_size=28, patch_size=14
    )
    transformers.Dinov2Model(eye).save_pretrained(base / "dinov2")
    reader = transformers.BertConfig(
        vocab_size=64, hidden_size=384, num_hidden_layers=1, num_attention_heads=12, intermediate_size=64
    )
    transformers.BertModel(reader).save_pretrained(base / "minilm")
    words = {name: i for i, name in enumerate(["[UNK]", "[PAD]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.save(str(base / "minilm" / "tokenizer.json"))
    net = RewindTransformer()
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(2, 16, 768), torch.randn(2, 384)).sum().backward()
    optimizer.step()
    args = argparse.Namespace(max_length=16, subsample_video=True, rewind=True, lr=1e-4, seed=42)
    stored = {
        "args": args,
        "model_state_dict": net.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
        "epoch": 19,
    }
    torch.save(stored, released / "rewind_metaworld_epoch_19.pth")
    return {"folder": released, "base_model": base}


class RewindTransformer(nn.Module):
    """The released architecture, as its tensors' names and shapes have it."""

    def __init__(self) -> None:
        super().__init__()
        self.video_proj, self.text_proj = nn.Linear(768, 512), nn.Linear(384, 512)
        self.first_pos_embed = nn.Parameter(torch.randn(1, 512))
        self.class_token = nn.Parameter(torch.randn(1, 1, 512))
        layer = nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048, batch_first=True)
        self.transformer = nn.TransformerEncoder(layer, num_layers=4)
        self.progress_head = nn.Sequential(
            nn.Linear(512, 256), nn.LayerNorm(256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 1), nn.Sigmoid()
        )

    def forward(self, frames: Tensor, text: Tensor) -> Tensor:
        """Progress [N, L]."""
        video = self.video_proj(frames)
        video[:, 0] += self.first_pos_embed
        tokens = torch.cat([self.text_proj(text).unsqueeze(1), video], dim=1)
        length = tokens.shape[1]
        mask = torch.triu(torch.full((length, length), float("-inf")), diagonal=1)
        return self.progress_head(self.transformer(tokens, mask=mask)[:, 1:]).squeeze(-1)


LAYOUTS = {
    "robo_dopamine": robo_dopamine,
    "vlac": vlac,
    "robo_reward": robo_reward,
    "lrm": lrm,
    "robometer": robometer,
    "rewind": rewind,
}
