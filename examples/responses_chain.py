"""Two turns in a chain: the second one continues from a first one that was truncated.

python examples/responses_chain.py    # OPENAI_API_KEY
"""

import openai

import continuation


def main() -> None:
    model = "gpt-5.5"
    # Completed turns are remembered in memory; a file would let another process continue.
    client = continuation.wrap(openai.OpenAI(), chain_store="memory")
    with client.responses.stream(
        model=model, max_output_tokens=1024, input="Write the first chapter."
    ) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
        first = stream.get_final_response()
    second = client.responses.create(
        model=model,
        max_output_tokens=1024,
        previous_response_id=first.id,
        input="And the second one.",
    )
    print(second.output_text)
    print(continuation.last_report())


if __name__ == "__main__":
    main()
