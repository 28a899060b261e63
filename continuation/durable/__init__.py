"""Journals in other people's engines: the session is the step's, and the engine decides who runs.

Each module here is for one engine, and is imported by who has it; nothing of ours schedules, queues
or retries. What they share is one line: a journal under the id that a step keeps when it is tried
again, opened with `take_over`. Where an engine tries again it holds the attempt before for lost,
which may be wrong; the epoch makes it true.
"""
