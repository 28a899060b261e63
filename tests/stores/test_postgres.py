"""PostgreSQL servers: the options of each connection, formats, and what counts as unreachable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from support.postgres import needs_postgres

from continuation.stores import postgres

TABLE, KEY = "continuation_made_up", 1
ONE = ("CREATE TABLE made_up_a (n integer); CREATE TABLE made_up_b (n integer)",)
TWO = (*ONE, "ALTER TABLE made_up_a ADD COLUMN more text")


def test_a_url_sets_what_it_names_and_we_the_rest() -> None:
    options = conninfo_to_dict(postgres.address("postgresql://u:p@h/d?keepalives_idle=99"))
    assert (options["keepalives_idle"], options["tcp_user_timeout"]) == ("99", "20000")
    assert options["application_name"] == "continuation"


def test_a_name_in_messages_has_no_password() -> None:
    assert postgres.server_and_database("postgresql://u:secret@h:1/d") == "postgresql://h:1/d"


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (psycopg.OperationalError("the connection is closed"), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.SerializationFailure(), True),
        (psycopg.errors.ReadOnlySqlTransaction(), True),
        (psycopg.errors.DiskFull(), False),
        (psycopg.errors.UndefinedTable(), False),
        (ValueError(), False),
    ],
)
def test_what_is_worth_another_connection(error: Exception, lost: bool) -> None:
    wrapped = RuntimeError()
    wrapped.__cause__ = error
    assert postgres.unreachable(error) is postgres.unreachable(wrapped) is lost


def test_the_contents_of_rows_are_not_named() -> None:
    assert postgres.reason(psycopg.errors.UniqueViolation("Key (a)=(secret)")) == "UniqueViolation"
    assert postgres.reason(psycopg.OperationalError("server closed\n")) == "server closed"


@needs_postgres
@pytest.mark.slow
def test_tables_are_brought_from_each_version_to_the_last(databases: Callable[[], str]) -> None:
    with closing(postgres.connect(postgres.address(databases()))) as db:
        for migrations, before in ((ONE, 0), (TWO, 1), (TWO, 2), (ONE, 2)):
            assert postgres.version(db, TABLE) == before
            with postgres.transaction(db):
                assert postgres.migrate(db, TABLE, KEY, migrations) == before
        db.execute("INSERT INTO made_up_a (n, more) VALUES (1, 'x')")
        assert postgres.version(db, TABLE) == 2


@needs_postgres
@pytest.mark.slow
def test_a_pool_refuses_who_waits_too_long(databases: Callable[[], str]) -> None:
    began, over, prepared = threading.Event(), threading.Event(), list[object]()
    pool = postgres.Pool(databases(), prepared.append, most=1, patience=0.05)

    def hold(_: postgres.Connection) -> bool:
        began.set()
        return over.wait(20)

    holder = threading.Thread(target=lambda: pool.run(hold))
    holder.start()
    assert began.wait(20)
    with pytest.raises(postgres.Busy):
        pool.run(lambda _: None)
    over.set()
    holder.join()
    assert pool.run(lambda db: db.execute("SELECT 1").fetchone()) == (1,)
    assert len(prepared) == 1
    pool.close()
