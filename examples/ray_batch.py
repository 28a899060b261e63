"""Many long answers with Ray Data: a block whose worker died resumes where it stopped.

pip install 'ray[data]'
python examples/ray_batch.py    # ANTHROPIC_API_KEY
"""

from pathlib import Path

import ray
from answers import TEXTS, answers

import continuation


def block(rows: dict, target: str) -> dict:
    texts = rows["text"].tolist()
    name = f"from {rows['number'][0]}"  # the same when the block is run again
    with continuation.Journal(target, session=name, take_over=True) as journal:
        return {"text": texts, "answer": answers(texts, journal)}


if __name__ == "__main__":
    target = str(Path("answers.db").absolute())  # on several machines: postgresql://...
    texts = ray.data.from_items([{"number": n, "text": text} for n, text in enumerate(TEXTS)])
    for row in texts.map_batches(block, batch_size=4, fn_args=(target,)).iter_rows():
        print(row["text"], len(row["answer"]))
