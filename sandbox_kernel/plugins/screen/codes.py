"""The codes of the screen: what code that is about to run looks like it would do. Imports code only.

It is triage, and not the wall: what is not found runs in the sandbox all the same.
"""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_IN_PYTHON = "Do it in Python, with the packages of the image."
_NOTHING = "Nothing: sandboxed code has no need of it."
_WAY_OUT = "Upload the data, or name the host in the setting network."
_INSTALL = "Build an image with --requirements, or upload wheels."
_NOT_HERE = "Leave it out: nothing outlives the session."
_SCRATCH = "Read and write below /mnt/data only."
_SECRETS = "Use the setting secrets, by which code never sees the value."
_PLAIN = "Write the code as it runs, without decoding or composing it."
_SMALLER = "Work in parts that fit into the limits of the session."
_FORMATS = "Use JSON, CSV or Parquet."
_ASK = "Ask the owner of the data, and work on a copy."
_SPLIT = "Split it into smaller cells, and keep large data in files."


@unique
class ScreenCode(Code):
    """What code that is about to run looks like it would do. It is triage, and not the wall."""

    # --- process and shell ---
    PROCESS_PROGRAM = "notice", "it starts another program", _IN_PYTHON
    PROCESS_SHELL = "notice", "it gives a command to a shell", _IN_PYTHON
    PROCESS_REPLACE = "notice", "it forks, or replaces the process by another program", _IN_PYTHON
    PROCESS_KILL = "notice", "it ends or signals processes", _NOTHING
    PROCESS_KILL_ALL = "violation", "it ends processes of the system, or all of them", _NOTHING
    PROCESS_REVERSE_SHELL = "violation", "it connects a shell to another machine", _NOTHING
    PROCESS_DOWNLOAD_RUN = "violation", "it runs what it downloads", _WAY_OUT
    PROCESS_INLINE_CODE = "notice", "it runs code in another interpreter", _IN_PYTHON
    PROCESS_PRIVILEGE = "violation", "it tries to gain another user's rights", _NOTHING
    PROCESS_SUDO = "notice", "it asks for the rights of root", _NOTHING
    PROCESS_SERVICE = "violation", "it stops or weakens a service or defence of the system", _NOTHING
    PROCESS_KERNEL = "violation", "it changes the system's kernel", _NOTHING
    PROCESS_INSTALL = "notice", "it installs packages", _INSTALL
    PROCESS_INSTALL_ODD = "violation", "it installs a package from an address or another index", _INSTALL
    PROCESS_BACKGROUND = "notice", "it leaves something running behind the cell", _NOT_HERE
    PROCESS_UNKNOWN_TEXT = "violation", "it runs text from a connection as a command", _NOTHING

    # --- file system ---
    FILE_DELETE = "notice", "it deletes files", _SCRATCH
    FILE_DELETE_MANY = "notice", "it deletes whole folders, or all files that it finds", _SCRATCH
    FILE_DELETE_SYSTEM = "violation", "it deletes, moves or empties files of the system or a home folder", _SCRATCH
    FILE_WRITE_SYSTEM = "violation", "it writes to system folders", _SCRATCH
    FILE_WRITE_OUTSIDE = "notice", "it writes outside of scratch", _SCRATCH
    FILE_READ_SYSTEM = "notice", "it reads files of the system or of other users", _SCRATCH
    FILE_TRAVERSAL = "notice", "a path climbs out of its folder", _SCRATCH
    FILE_PERMISSION = "notice", "it changes a file's permissions", _SCRATCH
    FILE_LINK = "notice", "it makes a link", _SCRATCH
    FILE_SEARCH = "notice", "it searches files outside of scratch", _SCRATCH
    FILE_DEVICE = "violation", "it formats, overwrites or wipes a device or files", _SCRATCH
    FILE_ENCRYPT = "violation", "it walks through files and encrypts them", _NOTHING
    FILE_ARCHIVE = "notice", "it packs files outside of scratch", _SCRATCH
    FILE_EXPOSE = "violation", "it puts system files where others can fetch them", _NOTHING

    # --- network ---
    NETWORK_FETCH = "notice", "it asks a host on the network", _WAY_OUT
    NETWORK_SOCKET = "notice", "it opens connections by itself", _WAY_OUT
    NETWORK_LISTEN = "notice", "it waits for connections", _NOTHING
    NETWORK_SERVE_FILES = "violation", "it serves files to anybody", _NOTHING
    NETWORK_SEND = "notice", "it sends data to a host", _WAY_OUT
    NETWORK_SEND_FILE = "violation", "it sends a file or a whole data set to a host", _WAY_OUT
    NETWORK_SEND_SECRET = "violation", "it sends credentials or system data to a host", _SECRETS
    NETWORK_MAIL = "notice", "it sends mail", _NOTHING
    NETWORK_SCAN = "violation", "it looks for open ports or other machines", _NOTHING
    NETWORK_SNIFF = "violation", "it listens to or forges others' traffic", _NOTHING
    NETWORK_TUNNEL = "violation", "it opens a tunnel to another machine", _NOTHING
    NETWORK_REMOTE = "notice", "it logs in to another machine", _NOTHING
    NETWORK_NAMES = "notice", "it looks up composed names, which can carry data out", _WAY_OUT
    NETWORK_METADATA = "violation", "it asks a cloud's metadata service, which hands out credentials", _NOTHING
    NETWORK_LOCAL = "notice", "it asks a service of this machine or its network", _NOTHING
    NETWORK_DROP_SITE = "violation", "it names a place for stolen data and second stages", _NOTHING
    NETWORK_FIREWALL = "violation", "it changes routes, the firewall or name resolution", _NOTHING
    NETWORK_FLOOD = "violation", "it floods a host with requests", _NOTHING
    NETWORK_UNVERIFIED = "notice", "it does not check certificates", "Leave certificate checks on."

    # --- credentials and environment ---
    CREDENTIAL_FILE = "violation", "it names a file that holds credentials", _SECRETS
    CREDENTIAL_SYSTEM = "violation", "it names the system's file of passwords or rights", _NOTHING
    CREDENTIAL_ENVIRONMENT = "notice", "it takes the whole environment", _SECRETS
    CREDENTIAL_VARIABLE = "notice", "it reads a variable that is named like a secret", _SECRETS
    CREDENTIAL_LITERAL = "notice", "a credential stands in the code", _SECRETS
    CREDENTIAL_STORE = "violation", "it asks a store of passwords, cookies or keys", _SECRETS
    CREDENTIAL_CAPTURE = "violation", "it records keys, the screen, the clipboard, a camera or a microphone", _NOTHING
    CREDENTIAL_CRACK = "violation", "it tries passwords", _NOTHING
    CREDENTIAL_PROMPT = "notice", "it asks a person for a password", _SECRETS
    MACHINE_INFORMATION = "notice", "it inspects the machine and its users", _NOTHING

    # --- persistence ---
    PERSIST_STARTUP = "violation", "it names a file that programs run at their start", _NOT_HERE
    PERSIST_SCHEDULE = "violation", "it has something run later or repeatedly", _NOT_HERE
    PERSIST_ACCOUNT = "violation", "it adds or changes an account or its key", _NOT_HERE
    PERSIST_PACKAGE = "violation", "it changes an installed package", _NOT_HERE
    PERSIST_ALIAS = "violation", "it gives a usual command another meaning", _NOT_HERE
    PERSIST_HOOK = "notice", "it has something run at the end, at every cell or at every import", _NOT_HERE
    PERSIST_PATCH = "notice", "it replaces a part of Python or its library", _NOT_HERE
    PERSIST_FINALIZER = "notice", "it runs code when an object is destroyed", _NOT_HERE

    # --- escape ---
    ESCAPE_NATIVE = "notice", "it calls functions of C libraries", _IN_PYTHON
    ESCAPE_MEMORY = "violation", "it accesses memory by address, or makes it executable", _NOTHING
    ESCAPE_PROC = "violation", "it uses what the kernel shows of processes", _NOTHING
    ESCAPE_CONTAINER = "violation", "it uses known ways out of containers", _NOTHING
    ESCAPE_SYSCALL = "violation", "it debugs, traces or replaces other processes", _NOTHING
    ESCAPE_BUILTINS = "violation", "it reaches builtins through other objects", _PLAIN
    ESCAPE_FRAMES = "notice", "it looks into frames, or at all objects", _PLAIN
    ESCAPE_CODE = "violation", "it builds or changes code objects", _PLAIN
    ESCAPE_FRONT_END = "notice", "it runs scripts in the front end's page", "Show data, and no scripts."
    ESCAPE_KERNEL = "notice", "it reaches into the kernel that runs it", _NOTHING

    # --- exhaustion ---
    EXHAUST_LOOP = "limit", "a loop has no end", _SMALLER
    EXHAUST_FORK = "violation", "it starts processes or threads without end", _SMALLER
    EXHAUST_MEMORY = "limit", "it asks for more memory than a session has", _SMALLER
    EXHAUST_DISK = "limit", "it fills the disk", _SMALLER
    EXHAUST_PROCESSOR = "limit", "it computes something that takes very long", _SMALLER
    EXHAUST_EXPANSION = "limit", "a small text unfolds into a huge one", _SMALLER
    EXHAUST_LIMITS = "notice", "it changes the limits of the process", _SMALLER
    EXHAUST_WAIT = "limit", "it waits for very long", _SMALLER

    # --- obfuscation ---
    HIDDEN_EXECUTION = "violation", "it runs code that it decodes first", _PLAIN
    HIDDEN_NAME = "violation", "it composes the name of what it uses", _PLAIN
    HIDDEN_LETTERS = "violation", "it has look-alike letters, or ones that reorder the text shown", _PLAIN
    DYNAMIC_EXECUTION = "notice", "it runs code that it makes while it runs", _PLAIN
    DYNAMIC_IMPORT = "notice", "it imports a module by a composed name", _PLAIN
    DYNAMIC_ATTRIBUTE = "notice", "it gets what starts programs or runs code by a composed name", _PLAIN
    UNSAFE_LOAD = "notice", "it loads data in a form that can run code", _FORMATS
    UNSAFE_LOAD_FORGED = "violation", "it makes or loads pickled data that runs code", _FORMATS
    TEMPLATE_INJECTION = "violation", "a text reaches for the inside of objects", _PLAIN
    NESTED_DECODERS = "notice", "it decodes something several times over", _PLAIN

    # --- miners ---
    MINER_PROGRAM = "violation", "it names a program that mines a currency", _NOTHING
    MINER_POOL = "violation", "it names a pool of miners", _NOTHING
    MINER_LOOP = "notice", "it searches for hashes, as miners do", _NOTHING

    # --- data ---
    DATA_DROP = "notice", "it drops or empties tables, or deletes rows", _ASK
    DATA_DROP_ALL = "violation", "it drops a whole database or store", _ASK
    DATA_DELETE_INPUTS = "violation", "it deletes its inputs", _ASK
    DATA_OVERWRITE = "notice", "it overwrites its inputs", _ASK
    DATA_HISTORY = "notice", "it discards history", _ASK
    DATA_LABELS = "notice", "it changes labels or rows of training data", _ASK
    DATA_PEOPLE = "notice", "it decides by race, gender, religion or origin", "Judge by what matters for the question."

    # --- judges of the operator ---
    SECOND_OPINION = "notice", "a judge of the operator gives the whole of it points", "Ask the operator of the judge."
    JUDGE_FAILED = "failure", "a judge of the operator gave no answer", "Look at screen_judges and screen_command."

    # --- the screen itself ---
    IMPORT_NOT_ALLOWED = "violation", "it imports a module that is not on the list", "Use the modules on the list."
    CELL_TOO_LARGE = "violation", "it is too large to be read", _SPLIT
    CELL_TOO_DEEP = "violation", "it is too intricate or deeply nested to be read", _SPLIT
    CELL_UNPARSED = "notice", "a part of it is not Python", "Check the line that is named."
