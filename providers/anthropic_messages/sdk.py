"""How commands call a model in the Messages format, through Anthropic's SDK."""

from __future__ import annotations

from typing import Any

from continuation.providers.sdk import SCHEMA, TOOL, End, OnDelta, Prompt, SdkDriver, SdkFacts


def _message(prompt: Prompt) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": prompt.model,
        "max_tokens": prompt.limit,
        "messages": [{"role": "user", "content": prompt.text}],
    }
    if prompt.system is not None:
        body["system"] = prompt.system
    if prompt.tool:
        body["tools"] = [{**TOOL, "input_schema": SCHEMA}]
    return body


def _messages(client: Any, prompt: Prompt, on_delta: OnDelta) -> End:
    with client.messages.stream(**_message(prompt)) as stream:
        for event in stream:
            if event.type == "text":
                on_delta.text(event.text)
            elif event.type == "input_json":
                on_delta.arguments(event.partial_json)
        message = stream.get_final_message()
    calls = [block.input for block in message.content if block.type == "tool_use"]
    return End(message.stop_reason, calls)


ANTHROPIC = SdkFacts(
    "anthropic",
    "anthropic",
    extra="anthropic",
    client="Anthropic",
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    base_url="ANTHROPIC_BASE_URL",
    own_errors=("anthropic:AnthropicError",),
    server="https://api.anthropic.com",
    credentials=("api_key", "auth_token", "credentials"),
)
AGENT = """\
import json, sys, warnings
import anthropic, continuation, httpx2

url, file, model, limit, answer, log = sys.argv[1:]
warnings.simplefilter("ignore", DeprecationWarning)  # a simulated model does not retire
http = httpx2.Client(trust_env=False)
bare = anthropic.Anthropic(base_url=url, api_key="simulated", max_retries=0, http_client=http)
journal = continuation.Journal(file, session="demo")
client = continuation.wrap(bare, journal=journal)
tools = [{"name": "Look", "input_schema": {"type": "object"}}]


def emit(**fields):
    print(json.dumps(fields), flush=True)


def look(call):
    with open(log, "a") as ran:
        ran.write(call.id + chr(10))
    return "It is a long file."


first = [{"role": "user", "content": "Look, then write the file."}]
while True:
    messages = journal.settle(look) or first
    received = 0
    with client.messages.stream(
        model=model, max_tokens=int(limit), tools=tools, messages=messages
    ) as stream:
        for text in stream.text_stream:
            received += len(text)
            emit(received=received)
        reply = stream.get_final_message()
    if reply.stop_reason not in ("tool_use", "pause_turn"):
        break
with open(answer, "wb") as whole:
    whole.write("".join(block.text for block in reply.content).encode())
report = continuation.last_report()
emit(saved=report.saved.output, billed=report.billed.output, outcome=report.outcome)
"""
DRIVER = SdkDriver(
    "anthropic",
    title="Anthropic Messages",
    sdk=ANTHROPIC,
    model="claude-opus-5",
    prefixes=("claude",),
    stop_name="stop_reason",
    ends=("end_turn", "stop_sequence"),
    called="tool_use",
    body=_message,
    stream=_messages,
    agent=AGENT,
)
