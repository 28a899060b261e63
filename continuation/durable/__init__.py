"""Journals in workflow engines: each step has a session, and the engine decides where a step runs.

Each module is for one engine, which must be installed; nothing here schedules, queues or retries.
All of them open a journal with `take_over`, in a session named by the id that a step keeps when it
is retried. An engine that retries a step takes the former run for dead, which may be wrong; the
epoch keeps that run from writing.
"""
