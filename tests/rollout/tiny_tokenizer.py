"""Tokenizers for tests: byte-level BPE trained on the spot, with any chat template put on."""

from __future__ import annotations

import json
from pathlib import Path

from agentfly.models.tiny import build_tokenizer

TEXTS = [
    "You are a careful assistant. What is the sum of these numbers?",
    '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n",
    "user assistant system tool [INST] [/INST] Question: Answer:",
] * 20

CHATML = """\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""

# No system role, roles must alternate, contents are trimmed, the assistant is called "model".
GEMMA = """\
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{%- endif %}
{%- for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{%- endif %}
{{- '<|im_start|>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + (m.content | trim) + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>model\\n' }}{%- endif %}"""

# Tools of its own, ids of calls checked, an answer without its call refused, in the manner of Mistral.
STRICT_TOOLS = """\
{%- if tools %}{{ '<|im_start|>tools\\n' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(open=[]) %}
{%- for m in messages %}
{%- if m.role == 'assistant' and m.tool_calls %}
{%- set ns.open = m.tool_calls | map(attribute='id') | list %}
{{- '<|im_start|>assistant\\n' + m.content }}
{%- for c in m.tool_calls %}
{%- if c.id | length != 9 %}{{ raise_exception('ids have 9 characters') }}{%- endif %}
{{- '<tool_call>' + ({'name': c.function.name, 'arguments': c.function.arguments} | tojson) + '</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}
{%- if m.tool_call_id not in ns.open %}{{ raise_exception('no such call') }}{%- endif %}
{{- '<|im_start|>result ' + m.tool_call_id + '\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role in ('user', 'assistant', 'system') %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""

# As DeepSeek R1's: earlier thoughts are left out of the history.
DROPS_THOUGHTS = """\
{%- for m in messages %}
{%- set text = m.content %}
{%- if m.role == 'assistant' %}
{%- if '</think>' in text %}{% set text = text.split('</think>')[-1] %}{% endif %}
{%- if loop.last and m.reasoning_content %}
{%- set text = '<think>' + m.reasoning_content + '</think>' + text %}
{%- endif %}
{%- endif %}
{{- '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""

FORGETS = """\
{%- for m in messages[-2:] %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""

COUNTS_AHEAD = "{{ messages | length }} messages\n" + CHATML

SHOUTS = CHATML.replace("m.content", "(m.content | upper)")

NO_END = """\
{%- for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ 'assistant: ' }}{%- endif %}"""

REFUSES = "{{ raise_exception('this model does not chat') }}"


def build_folder(folder: Path, template: str | None = None, *, vocab_size: int = 420) -> str:
    """Train a tokenizer into a folder; its chat template is Qwen3's manner unless another is given."""
    build_tokenizer(TEXTS, vocab_size, folder)
    if template is not None:
        set_template(folder, template)
    return str(folder)


def set_template(folder: Path, template: str) -> None:
    """Replace the folder's chat template."""
    file = folder / "chat_template.jinja"
    if file.exists():
        file.write_text(template)
        return
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": template}))
