"""A model as a GGUF file that llama.cpp runs as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizer import SPECIAL, TEMPLATE, library


def write(file: Path, name: str, model: dict[str, Any], coder: Any, sizes: dict[str, Any]) -> None:
    """Write weights and tokenizer; `sizes`: the sizes of the architecture."""
    gguf, np = library("gguf"), library("numpy")
    made = gguf.GGUFWriter(file, "llama")
    made.add_name(name)
    made.add_context_length(sizes["context"])
    made.add_embedding_length(sizes["width"])
    made.add_block_count(sizes["layers"])
    made.add_feed_forward_length(sizes["hidden"])
    made.add_head_count(sizes["heads"])
    made.add_head_count_kv(sizes["heads"])
    made.add_rope_dimension_count(sizes["width"] // sizes["heads"])
    made.add_rope_freq_base(sizes["base"])
    made.add_layer_norm_rms_eps(sizes["epsilon"])
    made.add_vocab_size(sizes["vocabulary"])
    rules = json.loads(coder.to_str())["model"]
    texts = sorted(rules["vocab"], key=rules["vocab"].get)
    types = gguf.TokenType
    made.add_tokenizer_model("gpt2")
    made.add_tokenizer_pre("gpt-2")
    made.add_token_list(texts)
    made.add_token_types([types.CONTROL if text in SPECIAL else types.NORMAL for text in texts])
    made.add_token_merges([" ".join(pair) for pair in rules["merges"]])
    made.add_eos_token_id(coder.token_to_id(SPECIAL[0]))
    made.add_pad_token_id(coder.token_to_id(SPECIAL[-1]))
    made.add_add_bos_token(False)
    made.add_chat_template(TEMPLATE)
    for key, value in model.items():
        made.add_tensor(f"{key}.weight", np.asarray(value, np.float32))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()
