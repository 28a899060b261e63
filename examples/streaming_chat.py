"""A chat in the terminal: each answer is streamed and complete.

python examples/streaming_chat.py    # ANTHROPIC_API_KEY; an empty line ends it
"""

import sys

import anthropic

import continuation

MODEL = "claude-sonnet-5"


def main() -> None:
    client = continuation.wrap(anthropic.Anthropic())
    messages: list[anthropic.types.MessageParam] = []
    for line in sys.stdin:
        if not line.strip():
            break
        messages.append({"role": "user", "content": line.strip()})
        with client.messages.stream(model=MODEL, max_tokens=1024, messages=messages) as stream:
            for text in stream.text_stream:
                print(text, end="", flush=True)
            answer = stream.get_final_message()
        messages.append({"role": "assistant", "content": answer.content})
        report = continuation.last_report()
        if report is not None:
            print(f"\n[{report.outcome}, {len(report.attempts)} attempts]")


if __name__ == "__main__":
    main()
