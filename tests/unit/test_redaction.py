"""Errors without what a job carried."""

import traceback

from regista.redaction import redact_text, redacted_exception


def raised(build: Exception) -> Exception:
    try:
        try:
            raise KeyError(f"card {4111 * 10**12 + 111111111111}")
        except KeyError as cause:
            raise build from cause
    except Exception as error:  # noqa: BLE001
        return error


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_values_that_a_job_carried_are_hidden_in_words_and_trace_and_causes() -> None:
    error = raised(ValueError("bad literal 'hunter22' of Ada"))
    carried = {"password": "hunter22", "deep": [{"card": 4111111111111111}], "name": "Ada"}

    text = shown(redacted_exception(error, carried))

    assert "hunter22" not in text
    assert "4111111111111111" not in text
    assert "ValueError: bad literal '***' of Ada" in text  # three letters say nothing
    assert "KeyError" in text
    assert "in raised" in text  # where it happened stays


def test_a_value_that_contains_another_is_hidden_whole_and_escapes_are_known() -> None:
    assert "tail" not in str(redacted_exception(ValueError("secret-tail"), ["secret", "secret-tail"]))
    assert "x\\ny" not in str(redacted_exception(ValueError(repr("abcx\nydef")), ["abcx\nydef"]))


def test_the_error_itself_is_left_as_it_was() -> None:
    error = ValueError("hunter22")
    made = redacted_exception(error, ["hunter22"])
    assert str(error) == "hunter22"
    assert type(made).__name__ == "ValueError"


def test_an_error_that_cannot_be_written_is_still_one() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert "cannot be printed" in str(redacted_exception(Odd()))


def test_nothing_is_hidden_where_nothing_stands() -> None:
    assert redact_text("all is well", ["hunter22"]) == "all is well"
