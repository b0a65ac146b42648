"""What stays or comes back: start files, schedules, accounts, changed packages, hooks and patches."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import Rule, Weight, words

RULES = (
    Rule(
        code=ScreenCode.PERSIST_STARTUP,
        weight=Weight.HIGH,
        cwe=506,
        text=(
            r"(^|[/~\s'\"])\.(bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zprofile|zshenv|cshrc|kshrc|xinitrc|xprofile|vimrc|inputrc|pythonrc|pythonstartup)\b",
            r"/etc/(profile(\.d)?|bash\.bashrc|zsh\S*|rc\.local|rc\d?\.d|init\.d|environment|ld\.so\.preload|ld\.so\.conf|xdg/autostart|pam\.d|skel|update-motd\.d)\b",
            r"\.config/autostart|LaunchAgents|LaunchDaemons|/etc/systemd/system|\.config/systemd/user|/lib/systemd/system|\.service\b[^\n]{0,200}\bsystemd\b|\bmulti-user\.target\b",
            r"(?i)CurrentVersion\\+Run\b|Start Menu\\+Programs\\+Startup|\bshell:startup\b",
            r"profile_default/startup|ipython_config\.py|jupyter_\w*config\.py|\.ipython/|custom/custom\.js|ipython_kernel_config",
            r"\b(sitecustomize|usercustomize)\b|packages/[^\n]{0,200}\.pth\b|\bPYTHONSTARTUP\b|\bLD_PRELOAD\b|\bDYLD_INSERT_LIBRARIES\b|\bBASH_ENV\b|\bPROMPT_COMMAND\b",
            r"\.git/hooks/|\bcore\.hooksPath\b|\.vscode/tasks\.json|\bcore\.fsmonitor\b",
        ),
        imports=words("sitecustomize usercustomize"),
        names=words("winreg.SetValueEx winreg.CreateKey _winreg.SetValueEx"),
    ),
    Rule(
        code=ScreenCode.PERSIST_SCHEDULE,
        weight=Weight.HIGH,
        cwe=506,
        names=words("crontab.CronTab crontab.* python_crontab.*"),
        shell=(
            r"^(crontab (?!-l)|crontab$|at (?!-l)|atd|anacron|systemd-run|schtasks|launchctl|systemctl (-\S+ )*enable)\b",
        ),
        script=(r"\|\s*crontab\b|\|\s*at\s+(now|\d)|\bcrontab\s+-(?!l)",),
        text=(
            r"/etc/cron\w*|/var/spool/cron|@reboot\s|\bcrontab\s+(-e|-r|-|/)|\*/?\d* \*/?\d* \* \* \*\s+\S+",
            r"\bOnCalendar=|\bOnBootSec=",
        ),
    ),
    Rule(
        code=ScreenCode.PERSIST_ACCOUNT,
        weight=Weight.HIGH,
        cwe=286,
        shell=(
            r"^(useradd|adduser|usermod|userdel|deluser|groupadd|gpasswd|passwd|chpasswd|chsh|chage|net user|net localgroup|dscl|ssh-copy-id|ssh-keygen|addgroup|vipw)\b",
        ),
        text=(
            r"\bauthorized_keys\b",
            r"\b(ssh-(rsa|ed25519)|ecdsa-sha2-nistp\d+) AAAA[\w+/]{20,}",
            r"\b\w+:[^:\s]{0,200}:0:0:[^:\n]{0,200}:/root:",
        ),
        script=(r"\|\s*(sudo\s+)?(chpasswd|passwd)\b",),
    ),
    Rule(
        code=ScreenCode.PERSIST_PACKAGE,
        weight=Weight.HIGH,
        cwe=506,
        text=(
            r"(site|dist)-packages/[\w./{}-]*\.(py|so|pth|pyc)\b|/usr/(local/)?lib/python[\d.]+/",
            r"(?s)\bcmdclass\b.{0,200}\binstall\b.{0,400}(system|subprocess|urlopen|exec)",
        ),
        names=words(
            "setuptools.command.install.install setuptools.command.develop.develop setuptools.command.egg_info.egg_info distutils.command.install.install setuptools.command.build_py.build_py"
        ),
        shell=(r"^(cp|mv|tee|sed -i|cat >|ln) .*(site|dist)-packages", r"^patch .*(site|dist)-packages"),
        script=(r">>?[ \t]*\S{0,200}(site|dist)-packages/",),
    ),
    Rule(
        code=ScreenCode.PERSIST_ALIAS,
        weight=Weight.HIGH,
        cwe=506,
        shell=(
            r"^alias (ls|ll|cd|cat|cp|mv|rm|sudo|su|ssh|git|python\d?|pip\d?|grep|ps|vi|vim|nano|curl|wget|man|echo|pwd|exit|clear|touch|mkdir|find|which|top|kill|apt|apt-get|whoami|chmod|date|less|head|tail|history)=",
            r"^alias \S+=.*\b(rm|shutdown|reboot|curl|wget|nc|dd|mkfs|kill|sudo|chmod|mv|python|bash|sh|echo|find)\b",
        ),
        text=(
            r"(?m)(^|[\s;\"'])alias (ls|ll|cd|cat|cp|mv|rm|sudo|su|ssh|git|python\d?|pip\d?|grep|ps|vi|vim|nano|curl|wget|man|echo|pwd|exit|clear|touch|mkdir|find|which|top|kill|apt|apt-get|whoami|chmod|date)=",
            r"(?m)(^|[\s;\"'])alias \w+=['\"\\]*.*\b(rm|shutdown|reboot|curl|wget|nc|dd|mkfs|kill)\b",
        ),
        script=(r"(^|\n|;)[ \t]*(function[ \t]+)?(ls|cd|cat|cp|mv|rm|sudo|ssh|git|python|grep|ps)\s*\(\)\s*\{",),
    ),
    Rule(
        code=ScreenCode.PERSIST_HOOK,
        weight=Weight.MEDIUM,
        cwe=506,
        names=words(
            "atexit.register sys.meta_path sys.path_hooks sys.settrace sys.setprofile threading.settrace threading.setprofile "
            "sys.addaudithook sys.excepthook sys.unraisablehook sys.displayhook site.addsitedir codecs.register "
            "signal.signal weakref.finalize sys.monitoring.* sys.set_asyncgen_hooks os.register_at_fork "
            "get_ipython().events.register get_ipython().set_custom_exc get_ipython().input_transformers_cleanup "
            "get_ipython().input_transformers_post get_ipython().ast_transformers get_ipython().register_magic_function "
            "get_ipython().set_hook get_ipython().define_macro get_ipython().alias_manager.* gc.callbacks builtins.__build_class__"
        ),
    ),
    Rule(
        code=ScreenCode.PERSIST_PATCH,
        weight=Weight.MEDIUM,
        cwe=506,
        names=words("unittest.mock.patch.object().x gorilla.* forbiddenfruit.curse"),
    ),
    Rule(
        code=ScreenCode.PERSIST_FINALIZER,
        weight=Weight.LOW,
        cwe=506,
        attributes=("def __del__",),
    ),
)
