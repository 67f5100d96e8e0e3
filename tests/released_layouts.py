"""Tiny versions of the released reward models, in the file layouts of their releases.

Sources of the layouts: docs/released_models.md. Names are written here again, independent of the package.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import embodied_rm.models.torchvision_shim  # noqa: F401  isort: skip
import numpy as np
import peft
import sentencepiece
import tiny_vlm
import torch
import transformers
from released_baselines import BASELINE_LAYOUTS
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn

from embodied_rm.models.judges import released_prompts as prompts
from embodied_rm.models.judges.chat import Query
from embodied_rm.models.released.vlac import VlacChat, preprocess_image

ROBOMETER_TOKENS = ("<|split_token|>", "<|reward_token|>", "<|pref_token|>", "<|sim_token|>", "<|prog_token|>")
ANSWERS = {
    "robo_dopamine": "<score>+30%</score>",
    "robo_reward": "ANSWER: 4",
    "lrm": '{"more_complete_image": "ImageB", "task_completed": "no", "completion_progress": 0.4}',
    "vlac": "1",
}
"""Text that each generative model is trained to answer to any query."""
DINOV2_PREPROCESSOR = {
    "image_processor_type": "BitImageProcessor", "do_convert_rgb": True, "do_resize": True, "do_center_crop": True,
    "do_rescale": True, "do_normalize": True, "size": {"shortest_edge": 256}, "resample": 3,
    "crop_size": {"height": 224, "width": 224}, "rescale_factor": 0.00392156862745098,
    "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
}  # fmt: skip
"""The preprocessor_config.json of facebook/dinov2-base."""
WORDS = ("open", "close", "the", "drawer", "lift", "red", "cube", "bring", "square", "to", "right")


def robo_dopamine(folder: Path) -> dict[str, Path]:
    """Write a Qwen2.5-VL, trained on its own prompt: on another one of eight images it would not end its answers."""
    save_trained(folder, tiny_vlm.make_qwen25, (prompts.ROBO_DOPAMINE_PROMPT,), ANSWERS["robo_dopamine"])
    return {"folder": folder}


def robo_reward(folder: Path) -> dict[str, Path]:
    """Write a Qwen3-VL."""
    return {"folder": tiny_vlm.save_model(folder, "qwen3_vl", answer=ANSWERS["robo_reward"])}


def lrm(folder: Path) -> dict[str, Path]:
    """Write three adapters with PEFT, one of which includes the vision model, and their base model, a Qwen3-VL.

    The base model is trained on the answers to all three prompts; the adapters change it little.
    """
    base = folder / "base"
    templates = (prompts.LRM_CONTRASTIVE_PROMPT, prompts.LRM_COMPLETION_PROMPT, prompts.LRM_PROGRESS_PROMPT)
    save_trained(base, tiny_vlm.make_qwen3, templates, ANSWERS["lrm"])
    for head in ("contrastive", "completion", "progress"):
        make_adapter(base, head, 0.001).save_pretrained(folder / "released" / head)
    return {"folder": folder / "released", "base_model": base}


def save_trained(folder: Path, make: Callable[[], tuple[Any, Any]], templates: Sequence[str], answer: str) -> None:
    """Train a tiny model to answer the prompts, three samples each, and write it."""
    torch.manual_seed(0)
    model, processor = make()
    samples = [(make_messages(prompt, seed), answer) for prompt in templates for seed in range(3)]
    assert tiny_vlm.train_steps(model, processor, samples, 100, 6e-3) < 0.02
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def make_messages(prompt: str, seed: int = 0) -> list[dict[str, Any]]:
    """Return messages with the prompt and noisy gray images. Odd seeds strip the pieces of text."""
    rng = np.random.default_rng(seed)
    task = ("lift it", "bring the red square to the right", "open the drawer")[seed % 3]
    texts = [text.replace("{instruction}", task) for text in prompt.split("<image>")]
    texts = [text.strip() for text in texts] if seed % 2 else texts
    content: list[dict[str, Any]] = [{"type": "text", "text": texts[0]}]
    for text in texts[1:]:
        gray = rng.integers(0, 128) + rng.integers(0, 99, (32, 32, 3))
        content += [{"type": "image", "image": gray.astype(np.uint8)}, {"type": "text", "text": text}]
    return [{"role": "user", "content": content}]


def make_adapter(base: Path, head: str, scale: float) -> peft.PeftModel:
    """Return the model in `base` with a random PEFT adapter; the one for progress has its own vision model."""
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(base)
    saved_modules = ["visual"] if head == "progress" else None
    config = peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=r".*language_model.*_proj", modules_to_save=saved_modules
    )
    torch.manual_seed(len(head))
    adapted = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                parameter += scale * torch.randn_like(parameter)
    return adapted.eval()


def robometer(folder: Path) -> dict[str, Path]:
    """Write a Qwen3-VL without its language head, with three heads, in two shards; the processor is in `base`."""
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
    config = {**model.config.to_dict(), "architectures": ["RFM"]}
    (released / "config.json").write_text(json.dumps(config))
    write_shards(released, tensors, 2)
    return {"folder": released, "base_model": base}


def write_shards(folder: Path, tensors: dict[str, Tensor], count: int) -> None:
    """Write weights to several files, with their index."""
    names = sorted(tensors)
    index = {}
    for number in range(count):
        file = f"model-{number + 1:05d}-of-{count:05d}.safetensors"
        shard = {name: tensors[name].contiguous() for name in names[number::count]}
        save_file(shard, folder / file, {"format": "pt"})
        index |= dict.fromkeys(shard, file)
    size = sum(tensor.nbytes for tensor in tensors.values())
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)


def vlac(folder: Path) -> dict[str, Path]:
    """Write an InternVLChatModel over InternLM2 with a SentencePiece tokenizer, and code that must not be executed."""
    folder.mkdir(parents=True)
    special_tokens = write_intern_tokenizer(folder)
    vision_config = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56,
        "patch_size": 14, "qkv_bias": True, "qk_normalization": False, "hidden_act": "gelu", "norm_type": "layer_norm",
        "layer_norm_eps": 1e-6,
    }  # fmt: skip
    llm_config = {
        "architectures": ["InternLM2ForCausalLM"], "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": max(special_tokens.values()) + 1,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "rope_theta": 1e6,
        "rope_scaling": {"factor": 2.0, "type": "dynamic"},
    }  # fmt: skip
    config = {
        "architectures": ["InternVLChatModel"], "model_type": "internvl_chat", "downsample_ratio": 0.5,
        "force_image_size": 56, "ps_version": "v2", "select_layer": -1, "vision_config": vision_config,
        "llm_config": llm_config, "auto_map": {"AutoModel": "modeling_internvl_chat.InternVLChatModel"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_internvl_chat.py").write_text("raise RuntimeError('code of a checkpoint was run')\n")
    eos_token_ids = [special_tokens["<|im_end|>"], special_tokens["<|im_start|>"]]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos_token_ids}))
    save_file(make_intern_weights(vision_config, llm_config), folder / "model.safetensors", {"format": "pt"})
    chat = VlacChat(folder)
    train_intern(chat, ANSWERS["vlac"])
    weights = to_released_weights(chat.model.state_dict(), num_groups=2)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return {"folder": folder}


def train_intern(chat: VlacChat, text: str) -> None:
    """Train the model to answer `text` to any query."""
    rng = np.random.default_rng(0)
    frames = list(rng.integers(0, 255, (4, 56, 56, 3), dtype=np.uint8))
    queries = [
        Query(parts=(*frames[:num_images], prompt[-200:]), system=prompts.VLAC_SYSTEM_PROMPT)
        for num_images, prompt in ((1, prompts.VLAC_DONE_PROMPT), (2, prompts.VLAC_CRITIC_PROMPT))
    ]
    end_token_id = chat.tokenizer.special_tokens["<|im_end|>"]
    optimizer = torch.optim.AdamW(chat.model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = torch.zeros(())
        for query in queries:
            answer_ids = [*chat.tokenizer.encode(text)[1:], end_token_id]
            ids = torch.tensor([[*chat.tokenizer.encode(chat.render_prompt(query)), *answer_ids]])
            pixels = torch.stack([preprocess_image(part, 56) for part in query.parts if not isinstance(part, str)])
            logits = chat.model(input_ids=ids, pixel_values=pixels).logits[0, -len(answer_ids) - 1 : -1]
            loss = loss + nn.functional.cross_entropy(logits, torch.tensor(answer_ids))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


def to_released_weights(state_dict: dict[str, Tensor], num_groups: int) -> dict[str, Tensor]:
    """Convert the weights of transformers' InternVL over a Llama to the names and matrices of the release."""
    weights: dict[str, Tensor] = {}
    for name, tensor in state_dict.items():
        if ".attention.k_proj." in name or ".attention.v_proj." in name or ".self_attn.k_proj" in name:
            continue
        if ".self_attn.v_proj" in name:
            continue
        if ".attention.q_proj." in name:
            qkv = [state_dict[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            weights[to_released_name(name).replace("attention.q_proj", "attn.qkv")] = torch.cat(qkv)
        elif ".self_attn.q_proj" in name:
            q, k, v = (state_dict[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj"))
            size = k.shape[0] // num_groups
            per_group = q.shape[0] // k.shape[0]
            rows = []
            for group in range(num_groups):
                rows += [
                    q[(group * per_group + i) * size : (group * per_group + i + 1) * size] for i in range(per_group)
                ]
                rows += [k[group * size : (group + 1) * size], v[group * size : (group + 1) * size]]
            weights[to_released_name(name).replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(rows)
        else:
            weights[to_released_name(name)] = tensor
    return {name: tensor.clone().contiguous() for name, tensor in weights.items()}


def to_released_name(name: str) -> str:
    """Return the name of a tensor in the release."""
    for transformers_part, released_part in (
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
        name = name.replace(transformers_part, released_part)
    return name


def write_intern_tokenizer(folder: Path) -> dict[str, int]:
    """Write tokenizer.model and tokenizer_config.json. Returns special token -> id."""
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
    vocab_size = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).vocab_size()
    names = ("<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>")
    special_tokens = {name: vocab_size + i for i, name in enumerate(names)}
    entries = {str(number): {"content": name, "special": True} for name, number in special_tokens.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": entries}))
    return special_tokens


def make_intern_weights(vision_config: dict[str, Any], llm_config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Return random weights with the released names."""
    torch.manual_seed(seed)
    vision_width, hidden = vision_config["hidden_size"], vision_config["intermediate_size"]
    width = llm_config["hidden_size"]
    heads, groups = llm_config["num_attention_heads"], llm_config["num_key_value_heads"]
    patches = (vision_config["image_size"] // vision_config["patch_size"]) ** 2
    shapes: dict[str, tuple[int, ...]] = {
        "vision_model.embeddings.class_embedding": (1, 1, vision_width),
        "vision_model.embeddings.position_embedding": (1, patches + 1, vision_width),
        "vision_model.embeddings.patch_embedding.weight": (
            vision_width,
            3,
            vision_config["patch_size"],
            vision_config["patch_size"],
        ),
        "vision_model.embeddings.patch_embedding.bias": (vision_width,),
        "mlp1.0.weight": (4 * vision_width,),
        "mlp1.0.bias": (4 * vision_width,),
        "mlp1.1.weight": (width, 4 * vision_width),
        "mlp1.1.bias": (width,),
        "mlp1.3.weight": (width, width),
        "mlp1.3.bias": (width,),
        "language_model.model.tok_embeddings.weight": (llm_config["vocab_size"], width),
        "language_model.model.norm.weight": (width,),
        "language_model.output.weight": (llm_config["vocab_size"], width),
    }
    for layer in range(vision_config["num_hidden_layers"]):
        base = f"vision_model.encoder.layers.{layer}"
        shapes |= {f"{base}.ls1": (vision_width,), f"{base}.ls2": (vision_width,)}
        shapes |= {
            f"{base}.attn.qkv.weight": (3 * vision_width, vision_width),
            f"{base}.attn.qkv.bias": (3 * vision_width,),
        }
        shapes |= {f"{base}.attn.proj.weight": (vision_width, vision_width), f"{base}.attn.proj.bias": (vision_width,)}
        shapes |= {f"{base}.mlp.fc1.weight": (hidden, vision_width), f"{base}.mlp.fc1.bias": (hidden,)}
        shapes |= {f"{base}.mlp.fc2.weight": (vision_width, hidden), f"{base}.mlp.fc2.bias": (vision_width,)}
        shapes |= {f"{base}.norm{i}.{part}": (vision_width,) for i in (1, 2) for part in ("weight", "bias")}
    for layer in range(llm_config["num_hidden_layers"]):
        base = f"language_model.model.layers.{layer}"
        head_size = width // heads
        shapes |= {f"{base}.attention.wqkv.weight": ((heads + 2 * groups) * head_size, width)}
        shapes |= {f"{base}.attention.wo.weight": (width, width)}
        shapes |= {f"{base}.feed_forward.w{i}.weight": (llm_config["intermediate_size"], width) for i in (1, 3)}
        shapes |= {f"{base}.feed_forward.w2.weight": (width, llm_config["intermediate_size"])}
        shapes |= {f"{base}.{name}.weight": (width,) for name in ("attention_norm", "ffn_norm")}
    norms = ("norm", "mlp1.0.weight", "ls1", "ls2")
    return {
        name: torch.ones(shape) if name.split(".")[-1] in norms or ("norm" in name and "weight" in name) else
        0.1 * torch.randn(shape) for name, shape in shapes.items()
    }  # fmt: skip


def rewind(folder: Path) -> dict[str, Path]:
    """Write a .pth checkpoint with arguments and optimizer state, and the two encoders."""
    torch.manual_seed(0)
    base, released = folder / "base", folder / "released"
    released.mkdir(parents=True)
    vision_config = transformers.Dinov2Config(
        hidden_size=768, num_hidden_layers=1, num_attention_heads=12, mlp_ratio=1, image_size=28, patch_size=14
    )
    transformers.Dinov2Model(vision_config).save_pretrained(base / "dinov2")
    (base / "dinov2" / "preprocessor_config.json").write_text(json.dumps(DINOV2_PREPROCESSOR))
    text_config = transformers.BertConfig(
        vocab_size=64, hidden_size=384, num_hidden_layers=1, num_attention_heads=12, intermediate_size=64
    )
    transformers.BertModel(text_config).save_pretrained(base / "minilm")
    vocab = {name: i for i, name in enumerate(["[UNK]", "[PAD]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special_tokens = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special_tokens)
    tokenizer.save(str(base / "minilm" / "tokenizer.json"))
    net = RewindTransformer()
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(2, 16, 768), torch.randn(2, 384)).sum().backward()
    optimizer.step()
    args = argparse.Namespace(max_length=16, subsample_video=True, rewind=True, lr=1e-4, seed=42)
    checkpoint = {
        "args": args,
        "model_state_dict": net.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
        "epoch": 19,
    }
    torch.save(checkpoint, released / "rewind_metaworld_epoch_19.pth")
    return {"folder": released, "base_model": base}


class RewindTransformer(nn.Module):
    """The released architecture, from the names and shapes of its tensors."""

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
        """Return progress [N, L]."""
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
    **BASELINE_LAYOUTS,
}
