"""The codes of files: which may not enter or leave the sandbox, and what the host's disk refuses. Imports code only.

The severity is that of a file on its way out, which a cell made. On its way in it is a file of the host's, of which the
code knows nothing: a report calls each of these a notice.
"""

from __future__ import annotations

from enum import unique

from .code import Code

_RENAME = "Give the file a plain name."
_SHALLOW = "Use fewer nested folders."
_PATH = "Give a path relative to /mnt/data."
_FETCH = "Fetch it by its name (`sandbox.files.download`), if it is meant."
_REGULAR = "Use regular files, each with one name."
_LATER = "Run another cell: what is left follows."
_DOWNLOADS = "Use a folder for downloads and for nothing else."
_FEWER = "Write fewer or smaller files, or raise the setting."
_SCRATCH = "Remove files from /mnt/data, or raise scratch_size."
_DISK = "Check the folder, its disk and its permissions."
_PLACE = "Name another folder or file."
_TAKEN = "Remove what is there, or use another name."
_LOOK = "Check the files in /mnt/data and their permissions."
_AGENT = "The sandbox's own answer was wrong: look at what the code does."


@unique
class FileCode(Code):
    """Why a file was not copied, written or read."""

    # --- names ---
    NAME_NOT_UTF8 = "violation", "its name is not UTF-8", _RENAME
    NAME_UNREADABLE = "violation", "its name contains {what}", _RENAME
    NAME_INVISIBLE_MARK = "violation", "its name contains an invisible mark where nothing needs it", _RENAME
    NAME_BACKSLASH = "violation", "its name contains a backslash", _RENAME
    NAME_EMPTY = "violation", "its name, or a part of its path, is empty", _RENAME
    NAME_TOO_LONG = "limit", "its name is too long", _RENAME
    NAME_HYPHEN = "violation", "its name begins with a hyphen, like an option of a command", _RENAME
    NAME_SPACES = "violation", "its name begins or ends with a space, or ends with a dot", _RENAME
    NAME_OF_DEVICE = "violation", "its name is that of a device on Windows", _RENAME
    NAME_SHORT_FORM = "violation", "its name is the short form of another name on Windows", _RENAME
    NAME_OF_ANOTHER = "violation", "on other systems its name is that of {other}", _RENAME
    NAME_IMPROPER = "violation", "{name!r} is no name of a file", _RENAME
    NAME_NOT_HELD = "violation", "scratch cannot hold a file of that name", _RENAME
    PATH_TOO_LONG = "limit", "its path is too long", _RENAME
    PATH_TOO_DEEP = "limit", "it lies too deep", _SHALLOW
    PATH_DEEPER = "violation", "it lies too deep", _SHALLOW
    PATH_ABSOLUTE = "violation", "its path is absolute", _PATH
    PATH_DOTS = "violation", "its path contains {part!r}", _PATH
    PATH_NONE = "violation", "that is no path", _PATH

    # --- what is left alone unless somebody asks for it ---
    HIDDEN = "notice", "it is hidden, or in a hidden folder", _FETCH
    HIDDEN_WHEN_READ = "notice", "it is hidden once its name is normalised", _FETCH
    CACHE = "notice", "it is a cache of Python's, and programs act upon it by themselves", _FETCH
    ACTED_UPON = "violation", "programs act upon files of its name by themselves", _FETCH

    # --- what is no plain file, or another one by now ---
    NOT_A_FILE = "violation", "it is {what}", _REGULAR
    LINK_INSIDE = "violation", "it is a link, lies behind one, or is no regular file", _REGULAR
    HARD_LINK = "violation", "it has another name elsewhere (a hard link); make a copy of it", _REGULAR
    CHANGED = "notice", "it changed while it was {done}", _LATER
    BEING_CHANGED = "notice", "it is being changed; it follows when it is complete", _LATER
    NOT_THE_KNOWN_ONE = "violation", "the sandbox did not write the host's file of that name", _DOWNLOADS

    # --- limits ---
    TOO_LARGE = "limit", "it is too large", _FEWER
    SCRATCH_FULL = "violation", "scratch is full", _SCRATCH
    SCRATCH_ENTRIES = "limit", "scratch has too many entries", _SCRATCH
    FOLDER_ENTRIES = "limit", "it holds too many entries; the rest is left out", _FEWER
    FOLDER_FILES = "limit", "the folder holds too many files", _FEWER
    FOLDER_BYTES = "limit", "the folder is too large as a whole", _FEWER
    SESSION_FILES = "limit", "the session has put too many files out", _FEWER
    SESSION_BYTES = "limit", "the session's files are too large together", _FEWER
    TIME_UP = "limit", "time is up; {count} files are left for the next cell", _LATER
    MANY_WRITES = "limit", "too many files are being written", _FEWER

    # --- the folders and files of the host ---
    FOLDER_UNREADABLE = "violation", "the folder cannot be read", _DISK
    FOLDER_SILENT = "limit", "the host's folder does not answer", _DISK
    FOLDER_NOT_OPENED = "violation", "the host's folder cannot be opened: {why}", _PLACE
    FOLDER_MISSING = "notice", "the host's folder is not there", _DISK
    FOLDER_UNFIT = "violation", "the host's folder {why}", _DOWNLOADS
    FOLDER_EXPECTED = "violation", "{name!r} is {what} and no folder", _PLACE
    FOLDER_NOT_FILE = "violation", "it is a folder", _PLACE
    LINK_NOT_FOLLOWED = "violation", "{name!r} is a link, which is not followed; name its target", _PLACE
    NAME_TAKEN = "violation", "{where} {what} of that name", _TAKEN
    PATH_TAKEN = "violation", "on its path, the host has {what} in place of a folder", _TAKEN
    OTHER_USER = "violation", "it belongs to another user", _PLACE
    NOT_APPENDED = "violation", "it holds something else already", _PLACE
    HOST_FAILED = "violation", "the host could not open, read or write it: {why}", _DISK

    # --- single files of scratch ---
    MISSING = "violation", "there is no such file", _LOOK
    IS_FOLDER = "violation", "there is a folder of that name", _TAKEN
    NOT_FOLDER = "violation", "a part of its path is a file", _TAKEN
    NOT_EMPTY = "violation", "the folder is not empty", _TAKEN
    DENIED = "violation", "the sandbox may not touch it", _LOOK
    NOT_TEXT = "notice", "it is not UTF-8 text; read it as bytes", "Read it as bytes."
    NO_WRITE = (
        "notice",
        "no such upload is under way: it ended, failed, or was silent for too long",
        "Begin the write again.",
    )
    NO_DESCRIPTION = "violation", "the sandbox gave no proper description of it", _AGENT
    NO_ANSWER = "violation", "the sandbox gave no proper answer", _AGENT
    NOT_DONE = "violation", "the sandbox could not do it", _AGENT
