"""A llama-like model of transformers as a GGUF file of float32 weights: what ropebench computes with, for llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write(model: Any, out: Path) -> None:
    """Weights and metadata; no vocabulary, since ids are all that is fed. The two channels of a rotary pair lie half a
    head apart in q and k of transformers, and side by side in a GGUF of this kind: row i of a head's first half becomes
    row 2i, row i of its second half row 2i + 1."""
    from gguf import GGUFWriter

    config, theta = model.config, model.config.rope_parameters["rope_theta"]
    heads, kept = config.num_attention_heads, config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer = GGUFWriter(out, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kept)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(theta)
    writer.add_rope_dimension_count(width)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("none")
    for name, weight in model.state_dict().items():
        values = weight.detach().float().numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            count = heads if "q_proj" in name else kept
            values = values.reshape(count, 2, width // 2, -1).swapaxes(1, 2).reshape(values.shape)
        if (new := _renamed(name, config.tie_word_embeddings)) is not None:
            writer.add_tensor(new, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _renamed(name: str, tied: bool) -> str | None:
    """The name in a GGUF; None for a head that is the embedding. Raises KeyError for a part that llama has not."""
    stem = name.removesuffix(".weight")
    if stem == "lm_head":
        return None if tied else "output.weight"
    if not stem.startswith("model.layers."):
        return {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}[stem] + ".weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_NAMES[part]}.weight"
