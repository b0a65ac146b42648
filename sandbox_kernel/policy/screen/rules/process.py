"""Processes and shells: what starts, ends or hides another program, and what gains its rights."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import FETCHED, RUNS_CODE, RUNS_COMMANDS, Rule, Weight, words

RULES = (
    Rule(
        code=ScreenCode.PROCESS_SHELL,
        weight=Weight.MEDIUM,
        cwe=78,
        names=words(
            "os.system os.popen subprocess.getoutput subprocess.getstatusoutput commands.getoutput posix.system nt.system "
            "asyncio.create_subprocess_shell pty.spawn popen2.popen2 pexpect.spawn pexpect.run sh.bash sh.sh invoke.run "
            "fabric.Connection().run fabric.api.local plumbum.local IPython.utils.process.system "
            "IPython.utils.process.getoutput IPython.utils.io.raw_print pip._internal.utils.subprocess.call_subprocess "
            "distutils.spawn.spawn setuptools._distutils.spawn.spawn platform.popen timeit.os.system test.support.os.system "
            "ptyprocess.PtyProcessUnicode.spawn sarge.run envoy.run delegator.run os.popen2 os.popen3 os.popen4"
        ),
        methods=words("system popen getoutput check_output run_command exec_command"),
        shell=(r"^(bash|sh|zsh|dash|ksh|csh|fish|busybox sh)( -\w+)*$",),
    ),
    Rule(
        code=ScreenCode.PROCESS_PROGRAM,
        weight=Weight.LOW,
        cwe=78,
        names=words(
            "subprocess.run subprocess.call subprocess.Popen subprocess.check_output subprocess.check_call "
            "asyncio.create_subprocess_exec os.startfile webbrowser.open webbrowser.get webbrowser.open_new "
            "concurrent.futures.process.subprocess.run"
        ),
    ),
    Rule(
        code=ScreenCode.PROCESS_REPLACE,
        weight=Weight.MEDIUM,
        cwe=78,
        names=words(
            "os.fork os.forkpty pty.fork os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe "
            "os.spawnl os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe os.posix_spawn "
            "os.posix_spawnp posix.fork posix.execv posix.execve posix.posix_spawn _posixsubprocess.fork_exec "
            "_posixsubprocess.* subprocess._posixsubprocess.* multiprocessing.util.spawnv_passfds subprocess._fork_exec "
            "_winapi.CreateProcess"
        ),
        shell=(r"^exec (?!\d*[<>]).",),
    ),
    Rule(
        code=ScreenCode.PROCESS_KILL,
        weight=Weight.MEDIUM,
        cwe=283,
        names=words(
            "os.kill os.killpg os.abort signal.pidfd_send_signal psutil.Process().kill psutil.Process().terminate"
        ),
        calls=words("psutil.Process().suspend psutil.Process().send_signal psutil.process_iter().kill"),
        methods=words("terminate kill"),
        shell=(r"^(kill|pkill|killall|xkill|fuser -k|taskkill|skill|snice)\b",),
    ),
    Rule(
        code=ScreenCode.PROCESS_KILL_ALL,
        weight=Weight.HIGH,
        cwe=283,
        shell=(
            r"^kill (-\w+ )*-?1$",
            r"^kill (-\w+ )*-- ?-1$",
            r"^(pkill|killall|pgrep) .*\b(init|systemd\w*|sshd|dockerd|containerd|cron|rsyslog\w*|auditd|NetworkManager|Xorg)\b",
            r"^(pkill|killall) (-\w+ )*(-u|-U|--uid) ",
            r"^(shutdown|reboot|halt|poweroff|telinit|init [06])\b",
            r"^systemctl (-\w+ )*(reboot|poweroff|halt|isolate|rescue|emergency)\b",
        ),
        script=(r"\bps\b[^|;\n]*\|.*\bxargs\b[^|;\n]*\bkill\b", r"\bkill\b[^;\n]*\$\(\s*(ps|pgrep|pidof)\b"),
        text=(r"(?i)\b(systemd-logind|lsass\.exe|csrss\.exe|winlogon\.exe)\b",),
    ),
    Rule(
        code=ScreenCode.PROCESS_REVERSE_SHELL,
        weight=Weight.CRITICAL,
        cwe=506,
        text=(
            r"/dev/(tcp|udp)/",
            r"\b(nc|ncat|netcat)(\.\w+)?\s([^\n|;]*\s)?(-\w*[ec]\s*|--exec\s+|--sh-exec\s+)\S*(sh|cmd|python\w*)\b",
            r"\b(bash|sh|zsh)\s+-i\b[^\n]*(>&|\d>&1|<&)",
            r"\bmkfifo\b[^\n]*\|[^\n]*\b(nc|ncat|netcat|telnet|openssl)\b",
            r"\bsocat\b[^\n]*\b(exec|system):",
            r"fsockopen\(|TCPSocket\.(open|new)\(|\bperl\b[^\n]*\bsocket\b[^\n]*\bexec\b",
            r"(?s)New-Object\s+\S*Net\.Sockets\.TCPClient",
            r"(?s)socket\.socket\(.{0,400}os\.dup2\(",
            r"\bmeterpreter\b|\bmsfvenom\b|\bmsfconsole\b",
        ),
    ),
    Rule(
        code=ScreenCode.PROCESS_DOWNLOAD_RUN,
        weight=Weight.CRITICAL,
        cwe=494,
        script=(
            r"\b(curl|wget|fetch|lwp-download|aria2c)\b[^\n;&|]*\|\s*(sudo\s+(-\w+\s+)*)?(env\s+)?(/\S*/)?(ba|z|da|k|c)?sh\b",
            r"\b(curl|wget)\b[^\n;&|]*\|\s*(sudo\s+)?(\S*/)?(python\w*|perl|ruby|node|php|source)\b",
            r"(?s)\b(curl|wget)\b.{0,300}(&&|;|\n).{0,200}\bchmod\s+(\+x|\d*[1357]\d*|a\+x|u\+x)\b",
            r"(?s)\b(curl|wget)\b.{0,300}(&&|;|\n)\s*(sudo\s+)?((ba|z)?sh|source|\.)\s+\S*[\w./-]+",
            r"(?s)\b(curl|wget)\b.{0,300}(&&|;|\n)\s*(sudo\s+)?(python\d?|perl|ruby|node)\s+\S+\.(py|pl|rb|js)",
            r"\b(ba|z)?sh\s+(-\w+\s+)*(<\(|\"?\$\(|`)\s*(curl|wget)\b",
            r"\b(eval|source|\.)\s+[\"']?(\$\(|`|<\()\s*(curl|wget)\b",
            r"\bpython\d?\s+(-\s*<\s*)?<\(\s*(curl|wget)\b",
        ),
        flows=((RUNS_CODE, FETCHED),),
    ),
    Rule(
        code=ScreenCode.PROCESS_INLINE_CODE,
        weight=Weight.LOW,
        cwe=94,
        shell=(
            r"^(perl|ruby|php|node|nodejs|lua|osascript|powershell|pwsh|tclsh|julia|Rscript)\b.* -(e|r|E|c|enc|EncodedCommand)\b",
            r"^g?awk\b.*\bsystem\(",
            r"^(find|vim|vi|less|man|tar|zip|nmap|ed|env|expect)\b.*(-exec(dir)? \S*sh\b|:!|--checkpoint-action|-TT )",
        ),
    ),
    Rule(
        code=ScreenCode.PROCESS_PRIVILEGE,
        weight=Weight.HIGH,
        cwe=250,
        names=words(
            "os.setuid os.seteuid os.setreuid os.setresuid os.setgid os.setegid os.setregid os.setresgid os.setgroups "
            "os.initgroups posix.setuid posix.setgid"
        ),
        shell=(
            r"^(su|pkexec|doas|runuser|sudoedit|newgrp)\b",
            r"^chmod .*(\bu?\+[rwx]*s|\b[246]7[0-7]{2}\b|g\+s)",
            r"^(setcap|capsh|setpriv)\b",
            r"^visudo\b",
            r"^sudo (-\w+ )*(su|bash|sh|zsh|-i|-s)\b",
        ),
        text=(r"NOPASSWD\s*:", r"\bcap_(setuid|sys_admin|dac_override|sys_ptrace|net_raw)\b"),
    ),
    Rule(
        code=ScreenCode.PROCESS_SUDO,
        weight=Weight.LOW,
        cwe=250,
        script=(r"(^|[\s;&|(])sudo\s+(?!(-\w+\s+)*(apt|apt-get|pip\d?|dpkg|yum|dnf|conda)\b)\S",),
        text=(r"^\s*sudo\s+\S",),
    ),
    Rule(
        code=ScreenCode.PROCESS_SERVICE,
        weight=Weight.HIGH,
        cwe=693,
        shell=(
            r"^systemctl (-\S+ )*(stop|disable|mask|kill|daemon-reload|enable|start|restart)\b",
            r"^service \S+ (stop|restart)\b",
            r"^(setenforce|aa-teardown|aa-disable|auditctl|chkconfig)\b",
            r"^(rm|truncate|shred|mv|ln|sed) .*(/var/log\b|\.bash_history|\.python_history|/var/run/utmp|wtmp|btmp|lastlog)",
            r"^(history -c|unset HISTFILE|journalctl .*--vacuum|dmesg -[cC]|logrotate -f)",
            r"^(swapoff|nvram|hwclock|date -s|timedatectl set)",
        ),
        script=(
            r">\s*(/var/log/|~/\.bash_history|/root/\.bash_history)",
            r"\bHISTFILE=/dev/null|HISTSIZE=0\b",
            r"(?i)\bSet-MpPreference\b|DisableRealtimeMonitoring",
        ),
    ),
    Rule(
        code=ScreenCode.PROCESS_KERNEL,
        weight=Weight.HIGH,
        cwe=250,
        shell=(r"^(insmod|modprobe|rmmod|kexec|depmod|dkms|sysctl (-\w+ )*-?w|sysctl \S+=|bpftool)\b",),
        text=(
            r"\b(init_module|finit_module|delete_module)\b",
            r"(?s)\b(module_init|MODULE_LICENSE)\s*\(",
            r"(?m)^[ \t]*(insmod|modprobe|rmmod)\s+\S",
            r"/lib/modules/(\$\(uname|\S+/build)|/proc/sys/kernel/|/sys/kernel/(debug|security)|/etc/(modules|sysctl\.conf)\b",
            r"\bsysrq(-trigger)?\b",
            r"\bobj-m\s*[+:]?=",
        ),
    ),
    Rule(
        code=ScreenCode.PROCESS_INSTALL,
        weight=Weight.LOW,
        cwe=1104,
        names=words(
            "pip.main pip._internal.main pip._internal.cli.main.main pip._internal.cli.main ensurepip.bootstrap"
        ),
        shell=(
            r"^(sudo )?(\S*/)?(python\d?(\.\d+)? -m )?(pip\d?|uv pip|uv|pipx|conda|mamba|micromamba|poetry) (-\S+ )*(install|add)\b",
            r"^(sudo )?(apt|apt-get|aptitude|yum|dnf|apk|pacman|zypper|brew|snap|npm|yarn|pnpm|gem|cargo|go) .*(install|add|-S)\b",
            r"^(dpkg|rpm) -\w*[iU]",
            r"^(python\d?|\S*/python\S*) setup\.py (install|develop)\b",
            r"^easy_install\b",
        ),
    ),
    Rule(
        code=ScreenCode.PROCESS_INSTALL_ODD,
        weight=Weight.HIGH,
        cwe=829,
        shell=(
            r"\b(pip\d?|uv pip) install\b.*(--(extra-)?index-url|--trusted-host|-i) ?=?(?!https://(pypi\.org|test\.pypi\.org"
            r"|download\.pytorch\.org|pypi\.nvidia\.com|pypi\.python\.org|pypi\.tuna\.tsinghua\.edu\.cn|mirrors?\.[\w.]+)/)\S",
            r"\b(pip\d?|uv pip) install\b.* http://",
            r"\b(npm|yarn|pnpm) .*--registry[ =]http://",
        ),
    ),
    Rule(
        code=ScreenCode.PROCESS_BACKGROUND,
        weight=Weight.MEDIUM,
        cwe=693,
        names=words("daemon.DaemonContext daemonize.Daemonize os.setsid"),
        shell=(r"^(nohup|setsid|disown|screen -\w*d|tmux new\S* -d|daemonize|start-stop-daemon|at |batch$)",),
        script=(r"[^&>|]&\s*$", r"[^&>|]&\s*(\n|;|disown|echo|done)", r"\bdisown\b"),
    ),
    Rule(
        code=ScreenCode.PROCESS_UNKNOWN_TEXT,
        weight=Weight.CRITICAL,
        cwe=78,
        flows=((RUNS_COMMANDS, FETCHED),),
    ),
)
