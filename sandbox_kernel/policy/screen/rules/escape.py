"""What leads out of the interpreter or the sandbox: native code, /proc, containers, frames and the inside of objects."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import Rule, Weight, words

RULES = (
    Rule(
        code=ScreenCode.ESCAPE_NATIVE,
        weight=Weight.MEDIUM,
        cwe=695,
        names=words(
            "ctypes.* cffi.FFI cffi.* _ctypes.* pycparser.* llvmlite.binding.* keystone.* pwn.asm pwn.shellcraft.* "
            "numpy.ctypeslib.load_library _cffi_backend.* unicorn.* winappdbg.* weave.inline"
        ),
        imports=words("ctypes cffi _ctypes pwn pwnlib"),
        shell=(r"^(gcc|g\+\+|cc|clang|nasm|as|ld|make|tcc|rustc|go (build|run))\b",),
    ),
    Rule(
        code=ScreenCode.ESCAPE_MEMORY,
        weight=Weight.HIGH,
        cwe=119,
        names=words(
            "ctypes.string_at ctypes.memmove ctypes.memset ctypes.pythonapi ctypes.pythonapi.* ctypes.CFUNCTYPE ctypes.from_address "
            "ctypes.c_char.from_address ctypes.c_int.from_address ctypes.c_long.from_address ctypes.c_byte.from_address "
            "ctypes.windll.* ctypes.WinDLL ctypes.wintypes.* mmap.PROT_EXEC os.memfd_create ctypes.py_object.from_address "
            "ctypes.c_void_p.from_address ctypes.c_ssize_t.from_address ctypes.c_size_t.from_address ctypes.PYFUNCTYPE ctypes.cast"
        ),
        methods=words("from_address"),
        text=(
            r"(\\x[0-9a-fA-F]{2}){12,}",
            r"(\x90){8,}|\x31\xc0.{0,40}\xcd\x80|\x0f\x05",
            r"(?s)\b(strcpy|strcat|gets|sprintf)\s*\(.{0,200}\bchar\s+\w+\[|\bchar\s+\w+\s*\[\s*\d+\s*\].{0,300}\b(strcpy|gets|memcpy|sprintf)\s*\(",
            r"\b(VirtualAlloc(Ex)?|WriteProcessMemory|CreateRemoteThread|RtlMoveMemory|mprotect)\b",
        ),
    ),
    Rule(
        code=ScreenCode.ESCAPE_PROC,
        weight=Weight.HIGH,
        cwe=200,
        text=(
            r"(?<![\w.])/proc/(self|thread-self|\d+|\{\}|\*|%[sd])/(mem|maps|root|cwd|exe|fd|environ|ns|task|map_files|pagemap|auxv|oom_\w+|attr)\b",
            r"(?<![\w.])/proc/(kcore|kallsyms|sysrq-trigger|sys/|kmsg|keys|iomem|kpage\w+|1/)",
            r"(?<![\w.])/sys/(kernel|fs/cgroup|firmware|module|devices/virtual|class/mem|power)\b",
        ),
        shell=(r"^(gcore|procdump|volatility|avml|lime|fmem)\b",),
    ),
    Rule(
        code=ScreenCode.ESCAPE_CONTAINER,
        weight=Weight.CRITICAL,
        cwe=250,
        names=words(
            "docker.from_env docker.DockerClient docker.APIClient docker.* kubernetes.config.load_incluster_config kubernetes.* podman.* os.unshare os.setns os.chroot os.pivot_root lxc.*"
        ),
        shell=(
            r"^(nsenter|unshare|chroot|pivot_root|runc|crun|ctr|crictl|nerdctl|lxc|lxd|debootstrap|systemd-nspawn|deepce\S*|amicontained|cdk)\b",
            r"^(docker|podman) (-\S+ )*(run|exec|cp|load|build|commit|save|export|attach|compose)\b",
            r"^(mount|umount) (?!$)(-\S+ )*\S",
            r"^kubectl\b",
        ),
        text=(
            r"\b(docker|containerd|crio|podman)\.sock\b",
            r"\brelease_agent\b|\bnotify_on_release\b|/proc/sys/kernel/core_pattern|/proc/self/exe\b.*runc|\buevent_helper\b",
            r"--privileged\b|--pid[= ]host\b|--net(work)?[= ]host\b|-v\s+/:/|--cap-add[= ]\S+|--security-opt\b.*unconfined",
            r"(?i)http://(localhost|127\.0\.0\.1|[\d.]+):(2375|10250|10255|2379)\b",
        ),
    ),
    Rule(
        code=ScreenCode.ESCAPE_SYSCALL,
        weight=Weight.HIGH,
        cwe=250,
        names=words(
            "ctypes.CDLL().syscall ctypes.CDLL().ptrace ctypes.CDLL().unshare ctypes.CDLL().setns ctypes.CDLL().mount ctypes.CDLL().prctl ctypes.CDLL().mprotect ctypes.CDLL().mmap ctypes.CDLL().system ctypes.CDLL().execve ctypes.CDLL().process_vm_readv ctypes.CDLL().keyctl ctypes.CDLL().chroot prctl.* seccomp.* ptrace.* os.pidfd_open ctypes.CDLL().setuid ctypes.CDLL().fork ctypes.CDLL().kill frida.* pyrasite.* bcc.BPF"
        ),
        methods=words("ptrace process_vm_readv syscall"),
        shell=(r"^(gdb|strace|ltrace|lldb|perf|bpftrace|frida\S*|r2|radare2|sysdig|pyrasite\S*|py-spy|pyflame)\b",),
        text=(
            r"\b(PTRACE_ATTACH|PTRACE_POKETEXT|process_vm_(read|write)v|io_uring_setup|perf_event_open|userfaultfd|SYS_ptrace|CLONE_NEW(NS|USER|PID|NET))\b|\bdirty[_ ]?(cow|pipe)\b|(?i:\bCVE-20\d\d-\d{4,}\b)",
        ),
    ),
    Rule(
        code=ScreenCode.ESCAPE_BUILTINS,
        weight=Weight.HIGH,
        cwe=913,
        attributes=words(
            "__subclasses__ __globals__ __builtins__ __bases__ __mro__ __base__ func_globals __loader__ __closure__ cell_contents "
            "__subclasshook__ __init_subclass__.__globals__ _module load_module create_module __self__.__dict__ exec_module"
        )[:8],
        names=words(
            "builtins.__dict__ warnings.catch_warnings()._module os._wrap_close importlib._bootstrap.* _frozen_importlib.* builtins.__loader__ sys.modules.__builtins__ site._Printer codecs.open.__globals__ importlib.machinery.BuiltinImporter importlib.machinery.SourceFileLoader imp.load_source imp.load_dynamic imp.load_compiled"
        ),
    ),
    Rule(
        code=ScreenCode.ESCAPE_FRAMES,
        weight=Weight.MEDIUM,
        cwe=913,
        attributes=words("f_back f_globals f_builtins f_locals gi_frame cr_frame ag_frame tb_frame tb_next"),
        names=words(
            "sys._getframe sys._current_frames sys.call_tracing inspect.currentframe inspect.stack inspect.getouterframes inspect.trace gc.get_objects gc.get_referrers "
            "gc.get_referents inspect.getframeinfo sys._current_exceptions inspect.getmembers_static objgraph.* pympler.muppy.*"
        ),
    ),
    Rule(
        code=ScreenCode.ESCAPE_CODE,
        weight=Weight.HIGH,
        cwe=94,
        names=words(
            "types.CodeType types.FunctionType types.LambdaType new.code new.function code.InteractiveInterpreter code.InteractiveConsole bytecode.* byteplay.* codetransformer.* types.ModuleType().exec"
        ),
        attributes=words("co_consts co_code co_names __code__ func_code"),
    ),
    Rule(
        code=ScreenCode.ESCAPE_FRONT_END,
        weight=Weight.MEDIUM,
        cwe=79,
        text=(
            r"(?i)\b(Jupyter|IPython)\.(notebook\.(kernel\.)?execute|notebook\.insert_cell|kernel\.execute)|\bnotebook\.kernel\.execute\b|JupyterLab\.(commands|shell)",
            r"(?is)<script\b[^>]{0,200}>.{0,400}(document\.cookie|localStorage|sessionStorage|XMLHttpRequest|fetch\s*\(|eval\s*\(|atob\s*\()",
            r"(?i)\b(onerror|onload|onclick|onmouseover)\s*=\s*[\"']?\s*(alert|fetch|eval|document\.|window\.|new Image|\$\.)",
            r"(?i)document\.cookie|javascript:\s*(fetch|eval|alert|document|window)\b",
        ),
    ),
    Rule(
        code=ScreenCode.ESCAPE_KERNEL,
        weight=Weight.MEDIUM,
        cwe=284,
        names=words(
            "get_ipython().kernel.* get_ipython().kernel get_ipython().user_ns get_ipython().user_global_ns get_ipython().history_manager.* ipykernel.* "
            "jupyter_client.* IPython.core.application.* get_ipython().run_code get_ipython().compile get_ipython().builtin_trap "
            "get_ipython().display_pub.* get_ipython().payload_manager.* get_ipython().set_next_input"
        ),
    ),
)
