"""A web service whose structured output is never truncated.

pip install 'fastapi[standard]'
fastapi run examples/fastapi_structured.py    # OPENAI_API_KEY
"""

import openai
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import continuation

app = FastAPI()
client = continuation.wrap(openai.AsyncOpenAI(), truncated_document="complete", on_failure="raise")


class Outline(BaseModel):
    title: str
    chapters: list[str]


@app.post("/outline")
async def outline(topic: str) -> Outline:
    """Write an outline; 502 if it could not be completed."""
    try:
        answer = await client.chat.completions.parse(
            model="gpt-5.5",
            max_completion_tokens=512,
            messages=[{"role": "user", "content": f"An outline of a book about {topic}."}],
            response_format=Outline,
        )
    except continuation.TruncatedAnswerError as error:
        raise HTTPException(502, error.report.reason) from error
    if (outline := answer.choices[0].message.parsed) is None:
        raise HTTPException(502, "the model refused")
    return outline
