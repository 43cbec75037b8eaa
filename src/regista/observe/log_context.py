"""What every log line says beyond its own words: who wrote it, and what it was about at that moment."""

import logging

from .. import trace_context


class ContextFields(logging.Filter):
    """Adds ids to every record that passes: of this process, of the job and the task that run, and of the trace.

    What a line says by itself stays as it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self._always: dict[str, str] = {}

    def always(self, **fields: str) -> None:
        """From now on every line says this; an empty word says nothing."""
        self._always.update({name: value for name, value in fields.items() if value})

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes, with ids."""
        said = vars(record)
        about = trace_context.CURRENT_SUBJECT.get()
        for name, value in () if about is None else about.ids.items():
            if value:
                said.setdefault(name, value)
        if trace_id := trace_context.trace_id():
            said.setdefault("trace_id", trace_id)
        for name, value in self._always.items():
            said.setdefault(name, value)
        return True


#: Of this process.
IDS = ContextFields()
