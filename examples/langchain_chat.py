"""LangChain with an HTTP client that completes answers.

pip install langchain-openai
python examples/langchain_chat.py    # OPENAI_API_KEY
"""

from langchain_openai import ChatOpenAI

import continuation


def main() -> None:
    llm = ChatOpenAI(
        model="gpt-5.5",
        max_completion_tokens=1024,
        http_client=continuation.http_client(),
        http_async_client=continuation.async_http_client(),
    )
    with continuation.watch() as turns:
        for piece in llm.stream("Write a long guide to rivers."):
            print(piece.text, end="", flush=True)
    print()
    for turn in turns:
        print(turn)


if __name__ == "__main__":
    main()
