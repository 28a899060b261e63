"""Gemini calls Python functions, never with truncated arguments.

python examples/gemini_functions.py    # GEMINI_API_KEY
"""

from google import genai

import continuation

NOTES: list[str] = []


def keep(text: str) -> str:
    """Keep a note.

    Args:
        text: what to keep.
    """
    NOTES.append(text)
    return "kept"


def main() -> None:
    client = continuation.wrap(genai.Client())
    chat = client.chats.create(
        model="gemini-3.1-pro",
        config=genai.types.GenerateContentConfig(tools=[keep], max_output_tokens=1024),
    )
    answer = chat.send_message("Keep a long note about rivers, then say what it is about.")
    print(answer.text)
    print(f"{len(NOTES)} notes, the longest of {max(map(len, NOTES), default=0)} characters")


if __name__ == "__main__":
    main()
