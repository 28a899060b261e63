"""A pydantic-ai agent over a wrapped client.

pip install 'pydantic-ai-slim[anthropic]'
python examples/pydantic_ai_agent.py    # ANTHROPIC_API_KEY
"""

import anthropic
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

import continuation


def main() -> None:
    client = continuation.wrap(anthropic.AsyncAnthropic())
    model = AnthropicModel(
        "claude-sonnet-5",
        provider=AnthropicProvider(anthropic_client=client),
    )
    agent = Agent(model, model_settings={"max_tokens": 1024})
    with continuation.watch() as turns:
        print(agent.run_sync("Write a long guide to rivers.").output)
    for turn in turns:
        print(turn)


if __name__ == "__main__":
    main()
