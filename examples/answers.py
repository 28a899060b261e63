"""Complete many long answers: the function that `ray_batch.py` and `temporal_batch.py` run.

python examples/answers.py    # ANTHROPIC_API_KEY
"""

import anthropic

import continuation

TEXTS = [f"Write a guide to river {number}." for number in range(8)]


def answers(texts: list[str], journal: continuation.Journal) -> list[str]:
    ask = {"model": "claude-sonnet-5", "max_tokens": 1024}
    requests = [{**ask, "messages": [{"role": "user", "content": text}]} for text in texts]
    said = dict[int, str]()
    for done in continuation.run_batch(anthropic.Anthropic(), requests, journal=journal):
        said[done.index] = done.answer.content[0].text if done.answer else str(done.error)
    return [said[index] for index in range(len(texts))]


if __name__ == "__main__":
    with continuation.Journal("answers.db", session="all") as journal:
        for text, answer in zip(TEXTS, answers(TEXTS, journal), strict=True):
            print(text, len(answer))
