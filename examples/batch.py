"""Send a batch, and complete its truncated answers after fetching them.

python examples/batch.py    # ANTHROPIC_API_KEY
"""

import time

import anthropic

import continuation

MODEL = "claude-sonnet-5"
QUESTIONS = {"rivers": "Write a guide to rivers.", "lakes": "Write a guide to lakes."}


def main() -> None:
    client = anthropic.Anthropic()
    requests = {
        name: {"model": MODEL, "max_tokens": 1024, "messages": [{"role": "user", "content": text}]}
        for name, text in QUESTIONS.items()
    }
    batch = client.messages.batches.create(
        requests=[{"custom_id": name, "params": asked} for name, asked in requests.items()]
    )
    while batch.processing_status != "ended":
        time.sleep(30)
        batch = client.messages.batches.retrieve(batch.id)
    for line in client.messages.batches.results(batch.id):
        if line.result.type == "succeeded":
            whole = continuation.finish(client, requests[line.custom_id], line.result.message)
            report = continuation.report(whole)
            print(line.custom_id, whole.stop_reason, report.outcome if report else "as it came")


if __name__ == "__main__":
    main()
