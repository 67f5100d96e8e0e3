"""A SmolVLM with random weights, small enough to train a SmolVLA on two cores; no network."""

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor
from transformers import SmolVLMVideoProcessor as VideoProcessor

IMAGE_SIZE = 64
SPECIAL_TOKENS = {
    "fake_image_token": "<fake_token_around_image>",
    "image_token": "<image>",
    "global_image_token": "<global-img>",
    "end_of_utterance_token": "<end_of_utterance>",
}
WORDS = ("<pad>", "<unk>", *SPECIAL_TOKENS.values(), "lift", "the", "red", "green", "blue", "cube")


def write_tiny_smolvlm(folder: Path) -> None:
    """Write configuration, tokenizer and image processor, which is what SmolVLA reads without `load_vlm_weights`."""
    text = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 32}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(WORDS), "pad_token_id": 0}
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": IMAGE_SIZE, "patch_size": 16}
    image_token_id = WORDS.index(SPECIAL_TOKENS["image_token"])
    config = SmolVLMConfig(
        text_config=text, vision_config=vision, scale_factor=2, image_token_id=image_token_id, pad_token_id=0
    )
    config.save_pretrained(folder)
    size = {"longest_edge": IMAGE_SIZE}
    video = VideoProcessor(size=size, video_sampling={"fps": 1, "max_frames": 4, "video_size": size})
    SmolVLMProcessor(SmolVLMImageProcessor(), make_tokenizer(), video).save_pretrained(folder)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the words of `lift_cube`."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token=SPECIAL_TOKENS["end_of_utterance_token"],
        extra_special_tokens=SPECIAL_TOKENS,
    )
