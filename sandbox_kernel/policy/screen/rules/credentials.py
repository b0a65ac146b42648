"""Credentials, the environment, and what tells one machine from another."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import Rule, Weight, words

RULES = (
    Rule(
        code=ScreenCode.CREDENTIAL_FILE,
        weight=Weight.HIGH,
        cwe=522,
        text=(
            r"\.ssh/(id_\w+|identity|config|known_hosts|\*|$)|\bid_(rsa|ed25519|ecdsa|dsa)\b|(^|/)\.ssh/?$|\.ssh\b/?['\"\s]",
            r"\.aws/(credentials|config|sso)|(^|/)\.aws/?$|\.config/gcloud|application_default_credentials|\.azure/(access|msal|azureProfile)|\.boto\b",
            r"(^|[/\\~'\"\s])\.(netrc|pgpass|git-credentials|pypirc|npmrc|dockercfg|s3cfg|vault-token|my\.cnf|htpasswd|terraformrc)\b",
            r"\.docker/config\.json|\.kube/config|kubeconfig\b.*\.ya?ml|\.config/(gh/hosts|rclone|hub)|\.terraform\.d/credentials",
            r"/(var/)?run/secrets/(kubernetes\.io|eks|\w+)|/etc/kubernetes/|serviceaccount/token",
            r"(?i)\b(Login Data|Local State|logins\.json|key[34]\.db|cookies\.sqlite|Web Data)\b|\\Google\\Chrome\\User Data|google-chrome/Default|\.mozilla/firefox|Local Storage[/\\]+leveldb",
            r"(?i)\bwallet\.dat\b|\.electrum|\.ethereum/keystore|\.bitcoin\b|\bmetamask\b|Exodus[/\\]+exodus\.wallet|\.config/solana/id\.json",
            r"(^|[/\\])\.gnupg\b|\.password-store\b|\.keystore\b|(?i:\.kdbx\b)|login\.keychain|\.local/share/keyrings",
            r"(^|[\s/'\"])\.env(\.(local|production|prod|development|dev|staging))?$",
            r"\bjupyter_server_config\.json\b|jupyter/runtime|\bkernel-[\w*-]+\.json\b|\.jupyter/",
            r"(?i)discord(ptb|canary)?[/\\]+Local Storage|\\Telegram Desktop\\tdata|\btdata\b",
        ),
    ),
    Rule(
        code=ScreenCode.CREDENTIAL_SYSTEM,
        weight=Weight.CRITICAL,
        cwe=522,
        text=(
            r"(?<![\w.])/etc/(shadow|gshadow|sudoers|security/opasswd|krb5\.keytab|master\.passwd|shadow-)",
            r"/etc/ssh/ssh_host_\w+_key\b|/etc/ssl/private",
            r"(?i)system32\\+config\\+(SAM|SYSTEM|SECURITY)\b|\bntds\.dit\b|\bmimikatz\b|\bsekurlsa\b",
            r"(?<![\w.])/proc/(self|\d+|\*|\{\}|1|thread-self)/environ\b",
        ),
    ),
    Rule(
        code=ScreenCode.CREDENTIAL_ENVIRONMENT,
        weight=Weight.MEDIUM,
        cwe=526,
        names=("os.environ", "os.environb"),
        shell=(r"^(env|printenv|export|declare|set|compgen -e)( -\w+)*$", r"^cat /proc/\S*/environ", r"^printenv\b"),
        script=(r"(^|[\n;&|(][ \t]*)(env|printenv)[ \t]*(\||>|$)",),
    ),
    Rule(
        code=ScreenCode.CREDENTIAL_VARIABLE,
        weight=Weight.LOW,
        cwe=526,
        script=(r"\$\{?[A-Z0-9_]*(SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|CREDENTIAL)[A-Z0-9_]*",),
    ),
    Rule(
        code=ScreenCode.CREDENTIAL_LITERAL,
        weight=Weight.LOW,
        cwe=798,
        text=(
            r"\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{22,}|\bglpat-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}",
            r"\bsk-(ant-|proj-)?[A-Za-z0-9_-]{20,}|\bAIza[\w-]{35}\b|\bhf_[A-Za-z0-9]{30,}|\bya29\.[\w-]{20,}|\bsk_live_\w{20,}|\bSG\.[\w-]{20,}",
            r"-----BEGIN (RSA |EC |OPENSSH |DSA |PGP )?PRIVATE KEY",
            r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}",
            r"\b(postgres(ql)?|mysql|mongodb(\+srv)?|redis|amqp|ftp)(\+\w+)?://[^\s:/@{]+:[^\s:/@{]{3,}@",
        ),
    ),
    Rule(
        code=ScreenCode.CREDENTIAL_STORE,
        weight=Weight.HIGH,
        cwe=522,
        names=words(
            "keyring.get_password keyring.get_credential keyring.get_keyring secretstorage.* win32crypt.CryptUnprotectData "
            "win32crypt.* browser_cookie3.* browsercookie.* pycookiecheat.* google.auth.default boto3.Session().get_credentials "
            "botocore.session.get_session().get_credentials botocore.credentials.* spwd.* crypt.crypt pwd.getpwall grp.getgrall "
            "netrc.netrc win32cred.* azure.identity.DefaultAzureCredential google.colab.auth.authenticate_user pypykatz.* lazagne.*"
        ),
        methods=words("get_credentials get_frozen_credentials CryptUnprotectData"),
        shell=(
            r"^(security (dump|find|export)|secret-tool|gnome-keyring\S*|vaultcmd|cmdkey|mimikatz|lazagne|pass show|keyctl|gpg (--export-secret|--list-secret)\S*)\b",
            r"^(aws configure (get|list|export)|aws sts|gcloud auth (print|application)|az account get-access-token|gh auth token|kubectl (get|describe) secrets?|vault (read|kv))\b",
            r"^(ssh-add -L|ssh-keygen -y)\b",
            r"\bgit config --get credential|^git credential fill",
        ),
    ),
    Rule(
        code=ScreenCode.CREDENTIAL_CAPTURE,
        weight=Weight.HIGH,
        cwe=506,
        names=words(
            "pynput.* keyboard.on_press keyboard.hook keyboard.record keyboard.read_key keyboard.* pyHook.* pyxhook.* pyperclip.paste "
            "PIL.ImageGrab.grab PIL.ImageGrab.grabclipboard mss.mss pyautogui.* pyscreenshot.grab cv2.VideoCapture "
            "sounddevice.rec pyaudio.PyAudio win32clipboard.* Xlib.* evdev.* mouse.hook tkinter.Tk().clipboard_get "
            "pandas.read_clipboard pyscreeze.* pygetwindow.* win32gui.GetForegroundWindow ctypes.windll.user32.GetAsyncKeyState"
        ),
        imports=words("pynput pyHook pyxhook"),
        methods=words("clipboard_get GetAsyncKeyState SetWindowsHookExA"),
        shell=(
            r"^(xclip|xsel|pbpaste|scrot|import -window|gnome-screenshot|screencapture|logkeys|xinput test|fswebcam|arecord|ffmpeg .*(x11grab|/dev/video)|showkey|xdotool)\b",
        ),
        text=(r"(?<![\w.])/dev/(input/|video\d|snd/|uinput)",),
    ),
    Rule(
        code=ScreenCode.CREDENTIAL_CRACK,
        weight=Weight.HIGH,
        cwe=307,
        names=words("passlib.hash.*.verify pikepdf._core.PasswordError"),
        shell=(
            r"^(hashcat|john|hydra|medusa|ncrack|aircrack-ng|fcrackzip|crackmapexec|ophcrack|patator|crunch|cewl|responder|kerbrute)\b",
        ),
        text=(r"\brockyou(\.txt)?\b",),
    ),
    Rule(
        code=ScreenCode.CREDENTIAL_PROMPT,
        weight=Weight.LOW,
        cwe=522,
        text=(
            r"(?i)\b(enter|type|confirm|verify) (your |the )?([\w-]+ )?(password|passphrase|credit card|card number|pin|ssn|social security|seed phrase)\b",
        ),
    ),
    Rule(
        code=ScreenCode.MACHINE_INFORMATION,
        weight=Weight.LOW,
        cwe=200,
        names=words(
            "platform.uname platform.node platform.version platform.processor platform.freedesktop_os_release os.uname "
            "os.getlogin os.getuid os.geteuid os.getgid os.getgroups socket.gethostname socket.getfqdn getpass.getuser pwd.getpwuid "
            "pwd.getpwnam uuid.getnode psutil.process_iter psutil.pids psutil.net_connections psutil.net_if_addrs psutil.users psutil.boot_time "
            "psutil.disk_partitions distro.* netifaces.interfaces os.getppid os.ctermid socket.if_nameindex winreg.* wmi.WMI cpuinfo.get_cpu_info os.listxattr os.cpu_count().x "
            "pkg_resources.working_set GPUtil.* os.statvfs resource.getrlimit sysconfig.get_config_vars site.getsitepackages platform.machine platform.architecture"
        ),
        shell=(
            r"^(whoami|id|uname|hostname|hostnamectl|ifconfig|ip (a|addr|r|route|link|neigh)\b.*|netstat|ss|ps|top|htop|lsof|w|who|users|groups|uptime|lscpu|lsblk|lspci|lsusb|lsmod|dmesg|dmidecode|mount|arp|route|systeminfo|ipconfig|tasklist|env|vmstat|iostat|crontab -l|sudo -l|getcap|findmnt|blkid|lshw|free|df)\b",
            r"^cat /(proc/(version|cpuinfo|meminfo|mounts|partitions|cmdline|modules|net/\w+)|etc/(os-release|issue|lsb-release|machine-id|hostname))",
        ),
        text=(
            r"(?<![\w.])/proc/(version|cpuinfo|meminfo|mounts|partitions|uptime|loadavg|stat|net/\w+|filesystems|self/(cgroup|mountinfo|status|cmdline|maps|mounts|limits|stat))\b|/etc/(os-release|machine-id|lsb-release)|/sys/class/(net|dmi)|/\.dockerenv\b|(?i:https?://(api\.)?(ipify\.org|ipinfo\.io|ifconfig\.(me|co)|icanhazip\.com|checkip\.amazonaws|ip-api\.com|ident\.me|myexternalip))",
        ),
    ),
)
