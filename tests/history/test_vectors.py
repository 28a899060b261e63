"""Vectors of the history facts, and acceptance rows, that can be said in a line of `notation`."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from support.notation import DIALECTS, Facts, read, write

from continuation.history import Reason, RepairPolicy, repair, validate

AN, OC, OR, GE = DIALECTS
ALL, NEAR = DIALECTS, (AN, OC, GE)  # where results must stand beside their calls
DEAD: dict[str, Any] = {"live": False}
OFF: dict[str, Any] = {"thinking": {"type": "disabled"}}
YES: dict[str, Any] = {"is_recovery": lambda text: text == "y"}
DROP: dict[str, Any] = {"strict": True, "duplicate_ids": "drop"}


class Vector(NamedTuple):
    number: str
    dialects: tuple[str, ...]
    given: str
    wanted: str
    fields: dict[str, Any]
    facts: Facts | None
    policy: dict[str, Any]


def _v(
    number: str,
    dialects: tuple[str, ...] | str,
    given: str,
    wanted: str = "=",
    fields: dict[str, Any] | None = None,
    facts: Facts | None = None,
    **policy: Any,
) -> Vector:
    where = (dialects,) if isinstance(dialects, str) else dialects
    return Vector(number, where, given, wanted, fields or {}, facts, policy)


KEPT: dict[str, Any] = {"strict": True, "live": False, "duplicate_ids": "drop"}

VECTORS = [
    _v("1", (AN, OC, OR), "U:x A[c:a] R:a U:y"),
    _v("1", ALL, "U:x A[c:a] R:a A[t:y] U:z"),
    _v("2 K08", ALL, "U:x A[c:a]", "U:x A[c:a] R*:a", **DEAD),
    _v("3 K08", ALL, "U:x A[c:a]"),
    _v("4", ALL, "U:x A[c:a] U:y", "U:x A[c:a] R*:a U:y"),
    _v("5 A03 Q02", ALL, "U:x A[c:a,c:b] R:a U:y", "U:x A[c:a,c:b] R:a R*:b U:y"),
    _v(
        "6",
        (AN, OC, GE),
        "U:x A[c:a,c:b,c:d] R:b",
        "U:x A[c:a,c:b,c:d] R*:a R:b R*:d",
        **DEAD,
    ),
    _v("7", (AN, OC, GE), "U:x A[c:a] U:ping R:a", "U:x A[c:a] R:a U:ping"),
    _v("7", OR, "U:x A[c:a] U:ping R:a"),
    _v(
        "8",
        (AN, OC),
        "U:x A[c:a] U:y A[c:b] R:b U:z R:a",
        "U:x A[c:a] R:a U:y A[c:b] R:b U:z",
    ),
    _v("9", (AN, OC, OR), "U:x A[c:a,c:b,c:d] R:d R:a R:b"),
    _v("9", GE, "U:x A[c:a,c:b,c:d] R:d R:a R:b", "U:x A[c:a,c:b,c:d] R:a R:b R:d"),
    _v("10", ALL, "U:x A[c:a] R:a R:q", "U:x A[c:a] R:a"),
    _v("11", ALL, "R:q U:x A[t:y]", "U:x A[t:y]"),
    _v("12", ALL, "R:a U:x A[c:a] U:y", "U:x A[c:a] R*:a U:y"),
    _v("13", ALL, "U:x A[c:a] R:a=1 R:a=2", "U:x A[c:a] R:a=1"),
    _v("14", ALL, "U:x A[c:a] R*:a R:a", "U:x A[c:a] R:a"),
    _v("15", (AN, OC, OR), "U:x A[c:a] R*:a R:a", "U:x A[c:a] R*:a", late_results="drop"),
    _v("16", OC, "U:x A[c:a] R:a=1 A[c:a,c:b] R:a=2 R:b", "U:x A[c:a] R:a=1 A[c:b] R:b", **DROP),
    _v("16", AN, "U:x A[c:a] R:a=1 A[c:a,c:b] R:a=2 R:b", "U:x A[c:a] R:a=1 A[c:b] R:b", **DROP),
    _v("17", OC, "U:x A[c:a] R:a=1 A[c:a,c:b] R:a=2 R:b"),
    _v(
        "18",
        AN,
        "U:x A[c:a] R:a=1 A[c:a,c:b] R:a=2 R:b",
        "U:x A[c:a] R:a=1 A[c:a_2,c:b] R:a_2=2 R:b",
    ),
    _v("19", (AN, OC, OR), "U:x A[c:a,c:a] R:a", "U:x A[c:a] R:a", **DROP),
    _v("19", (AN, OC, OR), "U:x A[c:a,c:a] R:a", "U:x A[c:a] R:a"),
    _v(
        "20",
        (AN, OC),
        "U:x A[t:p,c:a] A[t:q,c:a] R:a",
        "U:x A[t:p,c:a] R:a A[t:q]",
        **DROP,
    ),
    _v("21", (AN, OC, OR), "U:x A[t:p,c:a] R:a A[c:a] U:y", "U:x A[t:p,c:a] R:a U:y", **DROP),
    _v("22", AN, "U:x A[c:a] R:a=1 A[th0-,c:a] R:a=2", "U:x A[c:a] R:a=1", **DROP),
    _v("22", OC, "U:x A[c:a] R:a=1 A[th-,c:a] R:a=2", "U:x A[c:a] R:a=1", **DROP),
    _v("23", OC, "U:x A[c:a] A[c:a] R:a", "U:x A[c:a] R*:a A[c:a] R:a"),
    _v("23", AN, "U:x A[c:a] A[c:a] R:a=1", "U:x A[c:a] R*:a A[c:a_2] R:a_2=1"),
    _v(
        "24",
        (AN, OC),
        "U:x A[c:a] A[c:b] A[t:y]",
        "U:x A[c:a] R*:a A[c:b] R*:b A[t:y]",
        **DEAD,
    ),
    _v("25", ALL, "U:x A[c:a]", "U:x A[c:a] R*:a", live=False, reason=Reason.NOT_IN_CONTEXT),
    _v("26", ALL, "R:a U:x A[t:y]", "U:x A[t:y]"),
    _v("31", AN, "U:x A[c:a] U:y R:a", "U:x A[c:a] R:a U:y"),
    _v("34", AN, "U:x A[c:a,t:y] R:a", "U:x A[t:y,c:a] R:a"),
    _v("34", AN, "U:x A[th+,c:a,t:y] R:a", "U:x A[th+,c:a] R:a A[t:y]"),
    _v("35", AN, "U:x A[th+,c:a] U:y", "U:x A[th+,c:a] R*:a U:y"),
    _v("38", AN, "U:x A[th+,c:a] R:a", fields=OFF),
    _v("38", AN, "U:x A[th+,c:a] R:a", "U:x A[c:a] R:a", fields=OFF, strict=True),
    _v("39 K15", AN, "U:x A[th-] U:y", "U:x U:y"),
    _v("40", AN, "U:x A[th+] U:y", "U:x U:y"),
    _v("41", AN, "U:x A[t:y,th+] U:z", "U:x A[t:y] U:z"),
    _v("42", AN, "U:x A[th+,th+,c:a] R:a", "U:x A[c:a] R:a"),
    _v("43", AN, "U:x A[th-,t:y] U:z", "U:x A[t:y] U:z"),
    _v(
        "44",
        AN,
        "U:x A[th+,c:a] U:y A[th+,t:z] U:w",
        "U:x A[th+,c:a] R*:a U:y A[t:z] U:w",
        facts=Facts(binding=True),
    ),
    _v(
        "44",
        AN,
        "U:x A[th+,c:a] U:y A[th+,t:z] U:w",
        "U:x A[th+,c:a] R*:a U:y A[th+,t:z] U:w",
        facts=Facts(),
    ),
    _v("46 K16", OC, "U:x A[th-,c:a] R:a"),
    _v("50", AN, "U:x A[t:y]", "U:x A[t:y] U:Continue.", fields={"model": "claude-opus-5"}),
    _v("50", AN, "U:x A[t:y]", fields={"model": "claude-haiku-4-5"}),
    _v("50", AN, "U:x A[t:y]", fields={"model": "who-knows"}),
    _v("51", AN, "A[t:x] U:y", "U:head A[t:x] U:y", head_text="head"),
    _v("52", GE, "U:x U:y"),
    _v("52", GE, "U:x U:y", "U:x U:y", strict=True),
    _v("53 54", (AN, GE), "U:x A[t:1] A[t:2] U:y"),
    _v("53 54", (AN, GE), "U:x A[t:1] A[t:2] U:y", "U:x A[t:1,t:2] U:y", strict=True),
    _v("55", (OC, OR), "U:notice U:x A[t:y]"),
    _v("57", AN, "U:x A[t:y,s:w] U:z", "U:x A[t:y] U:z"),
    _v("58", AN, "U:x A[t:y,s:w]"),
    _v("64 K15", OC, "U:x A[th-] U:y", "U:x U:y"),
    _v("65", OC, "U:x A[th-,c:a] R:a A[th-,t:y] U:z"),
    _v(
        "65",
        OC,
        "U:x A[th-,c:a] R:a A[th-,t:y] U:z",
        "U:x A[c:a] R:a A[t:y] U:z",
        vendor="cerebras",
    ),
    _v("66", OR, "U:x A[th+,c:a]", "U:x A[th,c:a] R*:a", **DEAD),
    _v("67", OR, "U:x A[th+,c:a] U:y", "U:x U:y", unanswered_tool_calls="purge"),
    _v("68", OR, "U:x A[th+,th+,c:a] U:y", "U:x U:y", unanswered_tool_calls="purge"),
    _v("69", OR, "U:x A[th+,t:m,c:a] U:y", "U:x A[th,t:m] U:y", unanswered_tool_calls="purge"),
    # Its call is kept by the server, if the anchor is there (Wei-Shaw/sub2api#2247).
    _v("76", OR, "R:a", fields={"previous_response_id": "resp_1"}),
    _v("76", OR, "R:a", fields={"previous_response_id": "resp_1"}, **DEAD),
    _v("85", GE, "U:x A[c:a,c:b] R:a", "U:x A[c:a,c:b] R:a R*:b", **DEAD),
    _v("87", GE, "U:x A[c:a,c:b] R:b U:y R:a", "U:x A[c:a,c:b] R:a R:b U:y"),
    _v("91", GE, "U:x A[] U:y", "U:x U:y"),
    _v("93", GE, "U:x A[t:y]"),
    _v("93", GE, "U:x A[t:y]", "U:x A[t:y] U:Continue.", facts=Facts()),
    _v("95 C02", ALL, "U:x A[t:y,c:a] U:z", "U:x A[t:y] U:z", unanswered_tool_calls="purge"),
    _v("95", ALL, "U:x A[c:a] U:z", "U:x U:z", unanswered_tool_calls="purge"),
    _v("95", AN, "U:x A[th+,c:a] U:z", "U:x U:z", unanswered_tool_calls="purge"),
    _v("95", ALL, "U:x A[c:a,c:b] R:b U:z", "U:x A[c:b] R:b U:z", unanswered_tool_calls="purge"),
    _v("96", ALL, "U:x A[t:p,c:a,c:b] R:a R:b A[t:q] U:y"),
    _v("K01", ALL, "U:x A[c:a,c:b]", "U:x A[c:a,c:b] R*:a R*:b", **DEAD),
    _v("K02", ALL, "U:x A[c:a,c:b] R:a", "U:x A[c:a,c:b] R:a R*:b", **DEAD),
    _v(
        "K03",
        ALL,
        "U:x A[c:a] U:y A[c:b] U:z A[c:d] R:d",
        "U:x A[c:a] R*:a U:y A[c:b] R*:b U:z A[c:d] R:d",
    ),
    _v("K05", ALL, "U:x A[c:a] R*:a A[t:y] U:z R*:a", "U:x A[c:a] R*:a A[t:y] U:z"),
    _v("K06", ALL, "R:q U:x A[t:y] U:z", "U:x A[t:y] U:z"),
    _v("K07", NEAR, "U:x A[c:a] U:y A[t:z] U:w R:a", "U:x A[c:a] R:a U:y A[t:z] U:w"),
    _v("K09", NEAR, "U:x A[c:a,c:b] U:p R:a U:q R:b", "U:x A[c:a,c:b] R:a R:b U:p U:q"),
    _v("K10", ALL, "R:q U:x A[c:a] U:y", "U:x A[c:a] R*:a U:y", **KEPT),
    _v("K11", OC, "U:x A[c:a] R:a=1 A[c:a] R:a=2 A[t:y]"),
    _v("K11", OC, "U:x A[c:a] R:a=1 A[c:a] R:a=2 A[t:y]", "U:x A[c:a] R:a=1 A[t:y]", **KEPT),
    _v("K11", OC, "U:x A[c:a] A[c:a,c:b] R:a R:b", "U:x A[c:a] R:a A[c:b] R:b", **KEPT),
    _v("K12", ALL, "U:x A[c:a] R*:a R:a A[t:y]", "U:x A[c:a] R:a A[t:y]"),
    _v("K16", AN, "U:x A[th0+,t:z] U:y"),
    _v("K17 C03", ALL, "U:x A[t:y,c:a] U:z", "U:x A[t:y,c:a] R*:a U:z"),
    _v(
        "A05",
        AN,
        "U:x A[th+,c:a] R:a A[th+,t:y] U:z",
        "U:x A[c:a] R:a A[t:y] U:z",
        thinking="strip",
    ),
    _v("A06", AN, "U:x A[] U:y", "U:x U:y"),
    _v("A12", (AN, OC), "U:x A[c:a,c:b] R:b R:a U:y"),
    _v("A12", GE, "U:x A[c:a,c:b] R:b R:a U:y", "U:x A[c:a,c:b] R:a R:b U:y"),
    _v("A13", ALL, "U:x A[c:a] U:y A[t:z] U:w", "U:x A[c:a] R*:a U:y A[t:z] U:w"),
    _v("Q03", ALL, "U:x A[c:a] R:a U:y"),
    _v("Q04", ALL, "U:x A[c:a] R:a=1 A[t:y] U:z R:a=2", "U:x A[c:a] R:a=1 A[t:y] U:z"),
    _v("Q06", ALL, "U:x A[c:a] R:a"),
    _v(
        "Q07",
        ALL,
        "U:x A[t:p] U:Output†token A[t:q] U:y",
        "U:x A[t:pq] U:y",
        is_recovery=lambda text: text.startswith("Output†"),
    ),
    _v("Q07", AN, "U:x A[th+,t:p] U:y A[th+,t:q] U:z", facts=Facts(binding=True), **YES),
    _v("Q07", AN, "U:x A[th+,t:p] U:y A[th+,t:q] U:z", "U:x A[th+,t:pq] U:z", **YES),
    _v(
        "Q07",
        ALL,
        "U:x A[t:p] U:Go! A[t:q] U:Go! A[t:r,c:a] R:a",
        "U:x A[t:pqr,c:a] R:a",
        is_recovery=lambda text: text == "Go!",
    ),
]


@pytest.mark.parametrize(
    ("vector", "dialect"),
    [
        pytest.param(vector, dialect, id=f"{vector.number}-{dialect}-{n}")
        for n, vector in enumerate(VECTORS)
        for dialect in vector.dialects
    ],
)
def test_vector(vector: Vector, dialect: str) -> None:
    body = write(dialect, vector.given, **vector.fields)
    policy = RepairPolicy(**vector.policy)
    repaired = repair(body, dialect, policy=policy, facts=vector.facts)
    if vector.wanted == "=":
        assert repaired.body is body
    else:
        assert read(dialect, dict(repaired.body)) == vector.wanted
        assert repaired.changes
    how: dict[str, Any] = {"strict": policy.strict, "live": policy.live, "vendor": policy.vendor}
    assert validate(repaired.body, dialect, facts=vector.facts, **how) == []
    again = repair(repaired.body, dialect, policy=policy, facts=vector.facts)
    assert again.body is repaired.body


@pytest.mark.parametrize(("dialect", "marks"), [(AN, 1), (OC, 1), (GE, 1)])
def test_vector_15_a_late_result_of_a_sent_placeholder_is_kept_as_text(
    dialect: str, marks: int
) -> None:
    body = write(dialect, "U:x A[c:a] R*:a A[t:y] U:z R:a=late")
    policy = RepairPolicy(late_results="append")
    flat = str(repair(body, dialect, policy=policy).body)
    assert flat.count("Late result of the call a:\\nlate") == marks
    assert "[no result] test" in flat
