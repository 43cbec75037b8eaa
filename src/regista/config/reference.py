"""The reference page of all settings, written from their declarations. `python -m regista.config.reference` prints it."""

from textwrap import TextWrapper

from .client import Connection
from .orchestrator import Config
from .settings import Setting, Settings, settings_of
from .worker import WorkerConfig

fill = TextWrapper(140, break_long_words=False, break_on_hyphens=False).fill
_HEAD = """\
# Settings

<!-- Written by `python -m regista.config.reference`. Change the declarations in src/regista/config/ instead. -->

Every setting has a name in the environment and a field of one of three objects: `Config` for an orchestrator,
`WorkerConfig` for a worker process, `Connection` for the client library and the command line. The two ways are equal:

```python
config = Config(lease_s=10)  # in code
config = Config.from_env()  # REGISTA_LEASE_SECONDS=10 in the environment
```

- A wrong value stops the start and says what was *expected* and what it *got*.
- A variable that is set but empty counts as not set.
- A variable that begins with `REGISTA_` and is none of these stops the start too, with the nearest name as a hint.
- Secrets have no default and are never shown, in a log or in an error.
- A flag of the command line wins over the environment; [the reference](cli.md) says which flag is which setting.
"""
#: Defaults that are described.
_DEFAULTS = {"": ": empty", "[]": ": empty", "{}": ": empty", "()": ": empty", "None": ": unset"}


def settings_reference() -> str:
    """The page: the settings of an orchestrator, then what workers and clients have of their own."""
    parts = [_HEAD, *_sections(Config(instance_id="host"), settings_of(Config))]
    shared = {one.field: one for one in settings_of(Config)}
    for process in (WorkerConfig, Connection):
        every = settings_of(process)
        own = [one for one in every if shared.get(one.field) != one]
        parts += _sections(process(), own)
        if names := [_shared(one, process()) for one in every if one not in own]:
            parts.append(fill(f"A worker process also reads, as above: {', '.join(names)}.") + "\n")
    return "\n".join(parts)


def _sections(defaults: Settings, settings: "list[Setting] | tuple[Setting, ...]") -> list[str]:
    found = []
    for one in settings:
        if heading := defaults.SECTIONS.get(one.field):
            found.append(f"## {heading}\n")
        found.append(
            f"### `{one.env}`\n\n{_first_line(one, getattr(defaults, one.field))}\n{fill(one.help)}\n"
        )
    return found


def _shared(one: Setting, defaults: Settings) -> str:
    value = getattr(defaults, one.field)
    differs = value != getattr(Config(), one.field)
    return f"`{one.env}`" + (f" (default `{value}`)" if differs else "")


def _first_line(one: Setting, value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    shown = ": the host name" if one.field == "instance_id" else _DEFAULTS.get(text, f" `{text}`")
    others = "".join(f", also `{name}`" for name in one.names[1:])
    return f"Field `{one.field}`{others}, default{shown}."


if __name__ == "__main__":
    print(settings_reference(), end="")  # noqa: T201
