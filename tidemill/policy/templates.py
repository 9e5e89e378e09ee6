"""Chat templates for imported bases whose own shows no tools."""

CHATML_TOOLS = """\
{%- if tools or (messages and messages[0].role == 'system') -%}
<|im_start|>system
{% if messages and messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}
{%- if tools -%}
Answer with one call of a tool, as JSON: {"name":NAME,"arguments":{...}}. Tools:
{% for tool in tools -%}
{{ (tool.function if tool.function else tool) | tojson }}
{% endfor %}
{%- endif -%}
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
"""ChatML with the declared tools in the system turn; for models that know `<|im_start|>`."""

TEMPLATES = {"chatml-tools": CHATML_TOOLS}
