"""What to say of a file or folder that the system does not let be read: the cause, and what to do about that one."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from layerline.errors import ModelCorruptError, ModelError, ModelUnreadableError

_REMEDIES = {
    errno.EACCES: "Let the user that runs this read it, for example with chmod, or run this as its owner.",
    errno.EPERM: "Let the user that runs this read it, for example with chmod, or run this as its owner.",
    errno.EIO: "Check the disk.",
    errno.ESTALE: "Check the network drive it lies on.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENFILE: "Close other programs: the machine has too many open files.",
    errno.ENOMEM: "Free memory, or raise the limit of this process.",
    errno.ELOOP: "Its links lead in a circle; put the file itself there.",
}


def unreadable(path: Path, error: OSError) -> ModelError:
    """The error to raise for a model's file or folder that `error` kept from being read."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return ModelCorruptError(f"{path} is missing.", remedy="Put it there; copy or fetch the model whole.")
    remedy = _REMEDIES.get(error.errno or 0, "Check the disk, and the rights of the user that runs this.")
    return ModelUnreadableError(f"{path} cannot be read: {error.strerror or error}.", remedy=remedy)


def why_unreadable(folder: Path) -> str:
    """A sentence on why nothing can be listed in `folder`, empty if it can be."""
    try:
        with os.scandir(folder):
            return ""
    except FileNotFoundError:
        return f"{folder} does not exist: make it, or name another folder with --models."
    except OSError as error:
        failure = unreadable(folder, error)
        return f"{failure.message} {failure.remedy}"


def open_model_file(path: Path) -> BufferedReader:
    """`path` opened for reading, without waiting for anybody: a pipe or device in its place is refused.

    Raises ModelUnreadableError, or ModelCorruptError for what is missing, empty or no regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise unreadable(path, error) from error
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise ModelCorruptError(f"{path} is empty.", remedy="Its copy or download may have failed: fetch it anew.")
    raise ModelCorruptError(f"{path} is not a regular file.", remedy="Put the model's file itself there.")
