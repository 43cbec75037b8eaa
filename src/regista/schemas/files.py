"""Files as the client API tells of them."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

#: A link lives for at most a week, which is also what S3 allows.
MAX_LINK_S = 7 * 86_400.0
Seconds = Annotated[float, Meta(gt=0, le=MAX_LINK_S)]


class FileObject(Struct, frozen=True, kw_only=True):
    """A file of a job."""

    name: str
    size: int
    modified: datetime
    #: Changes with the content, where the store says so.
    etag: str | None


#: What a part of a name may not have, and a part that is neither `.` nor `..`.
_NOT = r"/\\#\x00-\x1f\x7f-\x9f"
_PART = rf"(?:[^.{_NOT}]|\.[^.{_NOT}]|\.\.[^{_NOT}])[^{_NOT}]{{0,237}}"
#: As `payloads.base.check_name` has it, but for the bytes of letters that need more than one.
Name = Annotated[
    str,
    Meta(
        pattern=rf"^{_PART}(?:/{_PART})*$",
        min_length=1,
        max_length=800,
        description="the name of a file of this job, like frames/001.png",
    ),
]


class UploadRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The file that somebody wants to write, and for how many seconds the link shall be good."""

    name: Name
    expires_in: Seconds = 3600.0


class FileLink(Struct, frozen=True, kw_only=True):
    """A URL that lets whoever has it read (GET) or write (PUT) one file. It needs no token."""

    name: str
    method: str
    url: str
    expires_in: float
    expires_at: datetime
    #: Of a file that is there.
    size: int | None = None
