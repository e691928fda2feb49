"""Tiny models in Hugging Face format, made on the spot: for demos and tests, where no download is possible.

The tokenizer has Qwen3's special tokens and chat format, so the `qwen3` renderer speaks to it. The
model is an ordinary Qwen3, Qwen2 or Llama of a few hundred thousand weights with seeded random values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentfly.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

Architecture = Literal["qwen3", "qwen2", "llama"]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# As in Qwen3 these are single tokens, yet part of the text that the model writes: decoding keeps them.
MARKUP_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

# Digits stand alone, so that a small model can learn numbers; all else of a line is one piece, so
# that merges may span words and a constant preamble folds into few tokens.
_PIECES = r"[0-9]|\n|[^0-9\n]+"

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n' }}
{{- 'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments ' }}
{{- 'within <tool_call></tool_call> XML tags:\\n<tool_call>\\n' }}
{{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}
{%- set arguments = call.function.arguments %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- (arguments if arguments is string else arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- elif message.role == 'user' or not loop.first %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def build_tokenizer(texts: Iterable[str], vocab_size: int, folder: str | Path) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on texts and save it.

    Any Unicode text comes back unchanged from encoding and decoding. Digits and line breaks are
    tokens of their own.

    Args:
        texts: what to train on: rendered conversations, special tokens and tool preamble included.
        vocab_size: upper limit of the vocabulary, special tokens included; few texts give fewer.
        folder: where to save it; made when missing.

    Returns:
        The tokenizer; `len()` of it is the vocabulary that a model needs.

    Raises:
        ConfigError: `vocab_size` leaves no room for the 256 bytes and the special tokens.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    fixed = 256 + len(SPECIAL_TOKENS) + len(MARKUP_TOKENS)
    if vocab_size < fixed:
        raise ConfigError(f"vocab_size {vocab_size} is too small: 256 bytes and the special tokens alone take {fixed}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(MARKUP_TOKENS),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_plain_parts(texts), trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP_TOKENS])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    wrapped.save_pretrained(folder)
    return wrapped


def _plain_parts(texts: Iterable[str]) -> Iterator[str]:
    """The texts without special tokens, which would otherwise be learned as plain merges."""
    pattern = re.compile("|".join(map(re.escape, SPECIAL_TOKENS + MARKUP_TOKENS)))
    for text in texts:
        yield from filter(None, pattern.split(text))


def build_model(
    folder: str | Path,
    *,
    vocab_size: int | None = None,
    architecture: Architecture = "qwen3",
    hidden: int = 128,
    layers: int = 3,
    heads: int = 4,
    kv_heads: int | None = None,
    intermediate: int | None = None,
    max_context: int = 2048,
    tied: bool = True,
    seed: int = 0,
    init_std: float = 0.06,
    rope_theta: float = 10_000.0,
) -> PreTrainedModel:
    """Make a causal language model with random weights and save it.

    Args:
        folder: where to save it; its tokenizer, when it has one, gives the stop and padding ids.
        vocab_size: rows of the embedding; None takes the tokenizer's.
        architecture: `qwen3`, `qwen2` or `llama`.
        hidden, layers, heads: size of the transformer; `hidden` is a multiple of `heads`.
        kv_heads: heads of keys and values; None makes them half of `heads` (at least 1).
        intermediate: width of the feed-forward part; None makes it twice `hidden`.
        max_context: most tokens of prompt and completion together.
        tied: whether the output layer is the embedding.
        seed: of the weights; the caller's random state stays as it was.
        init_std: standard deviation of the weights.
        rope_theta: base of the rotary positions; a small one tells near places apart better, so that a model
            for short texts learns sooner to copy.

    Returns:
        The model, in float32 and evaluation mode.

    Raises:
        ConfigError: `hidden` or `heads` don't divide, or there is neither a tokenizer nor a `vocab_size`.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kv_heads = kv_heads if kv_heads is not None else max(1, heads // 2)
    if hidden % heads or heads % kv_heads:
        raise ConfigError(f"hidden {hidden}, heads {heads}, kv_heads {kv_heads}: each must be a multiple of the next")
    sizes: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "intermediate_size": intermediate or 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": max_context,
    }
    if architecture != "qwen2":
        sizes["head_dim"] = hidden // heads
    sizes.update(_token_ids(Path(folder), vocab_size))
    config = AutoConfig.for_model(
        architecture,
        **sizes,
        tie_word_embeddings=tied,
        initializer_range=init_std,
        bos_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.eval()
    model.save_pretrained(folder)
    return model


def _token_ids(folder: Path, vocab_size: int | None) -> dict[str, int | None]:
    if not (folder / "tokenizer_config.json").exists():
        if vocab_size is None:
            raise ConfigError(f"no tokenizer in {folder}: build one first, or give vocab_size")
        return {"eos_token_id": None, "pad_token_id": None}
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return {
        "vocab_size": vocab_size or len(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
