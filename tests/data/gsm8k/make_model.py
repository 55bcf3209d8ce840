# SPDX-License-Identifier: Apache-2.0
"""Makes model/ and goldens.json: a small Qwen2 folder whose tokenizer and
configuration are written by Hugging Face's libraries, with random weights.

    pip install tokenizers==0.23.3 transformers==5.23.0 safetensors numpy
    python make_model.py
"""
import json
import os

import numpy as np
from safetensors.numpy import save_file
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, trainers)
from transformers import GenerationConfig, Qwen2Config

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(here, "model")
os.makedirs(out, exist_ok=True)

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + "
          "'\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
          "{% endif %}")


def texts():
    """Sentences of our own about counting things."""
    rng = np.random.default_rng(7)
    who = ["Anna", "The farmer", "A teacher", "Omar", "The shop", "Every child"]
    does = ["buys", "sells", "counts", "carries", "needs", "gives away"]
    what = ["apples", "boxes", "tickets", "dollars", "hours", "pencils",
            "liters of milk", "eggs per day", "miles each week"]
    ask = ["How many are left in total?", "How much does it cost altogether?",
           "What is the answer?", "How long will it take?"]
    for _ in range(3000):
        n, m = rng.integers(2, 900, 2)
        yield (f"{rng.choice(who)} {rng.choice(does)} {n} {rng.choice(what)} "
               f"and then {m} more. {rng.choice(ask)} It is {n} + {m} = "
               f"{n + m}.\n#### {n + m}")


tok = Tokenizer(models.BPE())
tok.normalizer = normalizers.NFC()
tok.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(QWEN2), "isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
tok.decoder = decoders.ByteLevel()
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
tok.train_from_iterator(texts(), trainers.BpeTrainer(
    vocab_size=640, show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tok.add_special_tokens([AddedToken(s, special=True, normalized=False)
                        for s in special])
tok.save(os.path.join(out, "tokenizer.json"))
eos = tok.token_to_id("<|im_end|>")
json.dump({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
           "pad_token": "<|endoftext|>", "chat_template": CHATML},
          open(os.path.join(out, "tokenizer_config.json"), "w"), indent=1)

vocab = (tok.get_vocab_size() + 63) // 64 * 64
config = Qwen2Config(
    vocab_size=vocab, hidden_size=64, intermediate_size=192,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=1024, tie_word_embeddings=True,
    bos_token_id=None, eos_token_id=eos,
    pad_token_id=tok.token_to_id("<|endoftext|>"), dtype="float32")
config.architectures = ["Qwen2ForCausalLM"]
config.save_pretrained(out)
GenerationConfig(eos_token_id=[eos, tok.token_to_id("<|endoftext|>")],
                 do_sample=True).save_pretrained(out)

rng = np.random.default_rng(1)
shapes = {"model.embed_tokens.weight": (vocab, 64), "model.norm.weight": (64,)}
for i in range(2):
    p = f"model.layers.{i}."
    for name, rows in (("q", 64), ("k", 32), ("v", 32)):
        shapes[p + f"self_attn.{name}_proj.weight"] = (rows, 64)
        shapes[p + f"self_attn.{name}_proj.bias"] = (rows,)
    shapes[p + "self_attn.o_proj.weight"] = (64, 64)
    shapes[p + "mlp.gate_proj.weight"] = (192, 64)
    shapes[p + "mlp.up_proj.weight"] = (192, 64)
    shapes[p + "mlp.down_proj.weight"] = (64, 192)
    shapes[p + "input_layernorm.weight"] = (64,)
    shapes[p + "post_attention_layernorm.weight"] = (64,)
save_file({k: (np.ones(s) if "norm" in k else rng.normal(0, 0.05, s))
           .astype(np.float32) for k, s in shapes.items()},
          os.path.join(out, "model.safetensors"), {"format": "pt"})

samples = [
    "Anna buys 12 apples and then 30 more. How many are left in total?",
    "It costs $1,250.50 -- or does it?\n\n#### 1250.5",
    "na\u00efve caf\u00e9 \u2014 e\u0301t\u00e9 \U0001f600 \u4e09\u500b",
    "<|im_start|>user\nHi<|im_end|>\n",
    "   spaces\t\tand\r\nlines  ",
]
json.dump([{"text": s, "ids": tok.encode(s, add_special_tokens=False).ids}
           for s in samples],
          open(os.path.join(here, "goldens.json"), "w"), indent=1)
