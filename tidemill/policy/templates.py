"""Chat templates for imported bases whose own shows no tools."""

_SYSTEM = """\
{%- if tools or (messages and messages[0].role == 'system') -%}
<|im_start|>system
{% if messages and messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}
"""
_END_AND_TURNS = """\
<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if not (loop.first and message.role == 'system') -%}
<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function if call.function else call -%}
{"name":"{{ function.name }}","arguments":{{ function.arguments if function.arguments is string
else function.arguments | tojson }}}
{%- endfor -%}
<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""

CHATML_TOOLS = (
    _SYSTEM
    + """\
{%- if tools -%}
Answer with one call of a tool, as JSON: {"name":NAME,"arguments":{...}}. Tools:
{% for tool in tools -%}
{{ (tool.function if tool.function else tool) | tojson }}
{% endfor %}
{%- endif -%}
"""
    + _END_AND_TURNS
)
"""ChatML with the declared tools in the system turn; for models that know `<|im_start|>`."""

CHATML_SIGNATURES = (
    _SYSTEM
    + """\
{%- for tool in tools or [] -%}
{%- set function = tool.function if tool.function else tool -%}
{{ function.name }}(
{%- for name in ((function.parameters or {}).properties or {}) -%}
{{ name }}{{ '' if loop.last else ', ' }}
{%- endfor -%}
){{ '' if loop.last else '; ' }}
{%- endfor -%}
"""
    + _END_AND_TURNS
)
"""As `chatml-tools`, tools as signatures: for a model that is trained on a product's own tools, and
whose prompt would be mostly schema otherwise."""

TEMPLATES = {"chatml-tools": CHATML_TOOLS, "chatml-signatures": CHATML_SIGNATURES}
