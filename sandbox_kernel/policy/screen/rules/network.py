"""The network: what is asked, sent, opened, listened to, scanned or flooded, and where stolen data goes."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import SENDS, Rule, Weight, words

RULES = (
    Rule(
        code=ScreenCode.NETWORK_FETCH,
        weight=Weight.LOW,
        calls=words(
            "requests.get requests.head requests.options requests.request requests.Session().get requests.session().get "
            "requests.Session().request urllib.request.urlopen urllib.request.urlretrieve urllib.request.URLopener "
            "urllib.request.Request urllib2.urlopen urllib.urlopen urllib.urlretrieve urllib3.PoolManager "
            "urllib3.PoolManager().request urllib3.request http.client.HTTPConnection http.client.HTTPSConnection "
            "httplib.HTTPConnection httplib2.Http httpx.get httpx.Client httpx.AsyncClient httpx.stream aiohttp.ClientSession "
            "wget.download pycurl.Curl mechanize.Browser tornado.httpclient.AsyncHTTPClient treq.get selenium.webdriver.* "
            "playwright.* scrapy.* boto3.* botocore.* google.cloud.storage.* azure.* gdown.download pooch.retrieve "
            "urllib.request.build_opener urllib.request.install_opener feedparser.parse xmlrpc.client.ServerProxy suds.Client "
            "websocket.create_connection websocket.WebSocketApp websockets.connect socketio.Client cloudscraper.* "
            "kaggle.api.* huggingface_hub.* tweepy.* praw.* openai.OpenAI anthropic.Anthropic"
        ),
        shell=(
            r"^(wget|curl|aria2c|lwp-request|http|https|fetch|axel|gdown|youtube-dl|yt-dlp|kaggle) ",
            r"^(git|hg|svn) (clone|fetch|pull|checkout https?)\b",
            r"^(ping|ping6|traceroute|tracepath|mtr)\b",
            r"^(gsutil|aws s3|az storage|rclone|s3cmd|mc) (cp|sync|get|ls|download)\b",
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_SOCKET,
        weight=Weight.MEDIUM,
        cwe=918,
        names=words(
            "socket.socket socket.create_connection socket.socketpair socket.fromfd asyncio.open_connection "
            "asyncio.open_unix_connection telnetlib.Telnet ssl.wrap_socket _socket.socket zmq.Context pika.BlockingConnection "
            "paho.mqtt.client.Client pwn.remote pwnlib.tubes.remote.remote dns.resolver.resolve dns.query.udp irc.bot.* "
            "redis.Redis redis.StrictRedis pymemcache.* scapy.all.send scapy.all.sr1 scapy.all.sr asyncio.get_event_loop().create_connection"
        ),
        shell=(r"^(nc|ncat|netcat|socat|telnet|openssl s_client|irssi)\b",),
    ),
    Rule(
        code=ScreenCode.NETWORK_LISTEN,
        weight=Weight.MEDIUM,
        cwe=605,
        names=words(
            "socket.create_server asyncio.start_server asyncio.start_unix_server http.server.HTTPServer "
            "http.server.ThreadingHTTPServer socketserver.TCPServer socketserver.UDPServer socketserver.ThreadingTCPServer "
            "xmlrpc.server.SimpleXMLRPCServer wsgiref.simple_server.make_server werkzeug.serving.run_simple uvicorn.run "
            "waitress.serve gevent.pywsgi.WSGIServer BaseHTTPServer.HTTPServer SocketServer.TCPServer websockets.serve "
            "twisted.internet.reactor.listenTCP rpyc.utils.server.ThreadedServer multiprocessing.connection.Listener"
        ),
        calls=words(
            "socket.socket().bind socket.socket().listen flask.Flask().run fastapi.FastAPI().run tornado.web.Application().listen "
            "aiohttp.web.run_app bottle.run"
        ),
        methods=words("listen"),
        shell=(
            r"^(nc|ncat|netcat)\b.* -\w*l",
            r"^socat\b.*listen",
            r"^(php -S|ruby -run|flask run|gunicorn|uvicorn|jupyter (notebook|lab|server)|sshd|vsftpd|nginx|apache2\w*|httpd|Xvnc|x11vnc|tightvnc\w*)\b",
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_SERVE_FILES,
        weight=Weight.HIGH,
        cwe=552,
        names=words(
            "http.server.SimpleHTTPRequestHandler SimpleHTTPServer.SimpleHTTPRequestHandler http.server.CGIHTTPRequestHandler "
            "pyftpdlib.* http.server.test"
        ),
        shell=(
            r"\bpython\d?(\.\d+)? (-\w+ )*-m (http\.server|SimpleHTTPServer|pyftpdlib|twisted)\b",
            r"^(npx )?(http-server|serve|twistd)\b",
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_SEND,
        weight=Weight.MEDIUM,
        cwe=201,
        calls=words(
            "requests.post requests.put requests.patch requests.delete requests.Session().post requests.session().post "
            "requests.Session().put httpx.post httpx.put httpx.Client().post aiohttp.ClientSession().post "
            "http.client.HTTPSConnection().request http.client.HTTPConnection().request ftplib.FTP ftplib.FTP_TLS "
            "ftplib.FTP().storbinary ftplib.FTP().storlines telegram.Bot slack_sdk.WebClient discord_webhook.DiscordWebhook "
            "dropbox.Dropbox twilio.rest.Client pastebin.* socket.socket().send socket.socket().sendall socket.socket().sendto "
            "urllib3.PoolManager().urlopen"
        ),
        methods=words(
            "sendall sendto storbinary upload_file upload_fileobj put_object upload_blob files_upload upload_from_filename"
        ),
        shell=(
            r"^curl\b.* (-d|--data\S*|-F|--form|-T|--upload-file|-X ?(POST|PUT|DELETE|PATCH))\b",
            r"^curl\b.* -(d|F|T|XPOST|XPUT)\S*",
            r"^wget\b.* --(post|body)-(data|file)",
            r"^(ftp|tftp|lftp|sftp|scp|rsync)\b.*(:|@)",
            r"^(aws s3|gsutil|az storage|rclone|s3cmd|mc) (cp|sync|mv|put|upload\S*)\b",
            r"^git (push|remote add)\b",
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_SEND_FILE,
        weight=Weight.HIGH,
        cwe=201,
        shell=(
            r"^curl\b.*((-d|--data\S*|-F|--form) ?\S*@|-T ?\S|--upload-file)",
            r"^wget\b.* --(post|body)-file",
            r"^(scp|rsync|sftp)\b .*\S+@\S+:",
        ),
        script=(
            r"\b(cat|tar|zip|base64|gzip|dd|mysqldump|pg_dump)\b[^;\n]*\|\s*(nc|ncat|netcat|curl|ssh|openssl s_client|telnet|socat)\b",
            r"\b(nc|ncat|netcat)\b[^;\n|]*<\s*\S",
        ),
        flows=((SENDS, r"\bbuiltins\.open\b|\.(read_bytes|read_text|read_csv|read_parquet|to_csv|to_json)\b"),),
    ),
    Rule(
        code=ScreenCode.NETWORK_SEND_SECRET,
        weight=Weight.CRITICAL,
        cwe=522,
        script=(
            r"\b(env|printenv|set|export -p)\b[^;\n]*\|[^;\n]*\b(curl|wget|nc|ncat|netcat|mail|telnet|openssl)\b",
            r"\b(curl|wget|nc)\b[^;\n]*(\$\(|`|@|<\s*)\s*(cat\s+|env|printenv)?\S*(/etc/(passwd|shadow)|\.ssh/|\.aws/|\.env\b|id_rsa|credentials)",
            r"(/etc/(passwd|shadow)|\.ssh/|\.aws/|id_rsa)[^;\n]*\|[^;\n]*\b(curl|wget|nc|ncat|mail)\b",
            r"\b(curl|wget)\b[^;\n]*\$\{?[A-Z_]*(SECRET|TOKEN|PASSWORD|AWS_\w+|API_?KEY)",
        ),
        flows=(
            (
                SENDS,
                r"\bos\.(environ|getenv|uname)\b|\bplatform\.|\bsubprocess\.|\bsocket\.gethostname|\bgetpass\.|\bkeyring\.",
            ),
            (r"(requests|httpx)\.(get|head)|urllib\.request\.urlopen", r"\bos\.environ\b"),
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_MAIL,
        weight=Weight.MEDIUM,
        cwe=201,
        names=words(
            "smtplib.SMTP smtplib.SMTP_SSL smtplib.LMTP yagmail.SMTP sendgrid.* mailjet_rest.* imaplib.IMAP4 imaplib.IMAP4_SSL poplib.POP3 poplib.POP3_SSL aiosmtplib.* win32com.client.Dispatch redmail.*"
        ),
        shell=(r"^(mail|mailx|mutt|sendmail|swaks|ssmtp|msmtp|sendemail)\b",),
    ),
    Rule(
        code=ScreenCode.NETWORK_SCAN,
        weight=Weight.HIGH,
        cwe=200,
        names=words("nmap.PortScanner nmap.* scapy.all.arping masscan.* shodan.* socket.socket().connect_ex"),
        methods=words("connect_ex"),
        shell=(
            r"^(nmap|masscan|zmap|rustscan|arp-scan|netdiscover|fping|nikto|gobuster|dirb|ffuf|wpscan|sqlmap|enum4linux|smbclient|smbmap|nbtscan|unicornscan|hping3 --scan|dnsrecon|dnsenum|fierce)\b",
            r"^(nc|ncat|netcat)\b.* -\w*z",
        ),
        script=(r"\bfor\b[^\n]*\b(seq|\{\d+\.\.\d+\})[^\n]*\b(ping|nc|/dev/tcp)\b",),
    ),
    Rule(
        code=ScreenCode.NETWORK_SNIFF,
        weight=Weight.HIGH,
        cwe=319,
        names=words(
            "scapy.all.sniff scapy.sendrecv.sniff scapy.all.* socket.SOCK_RAW socket.AF_PACKET socket.PF_PACKET pyshark.* pcap.* "
            "pcapy.* dpkt.* netfilterqueue.* mitmproxy.* impacket.* socket.SIO_RCVALL socket.IPPROTO_RAW scapy.layers.* "
            "pylibpcap.* libpcap.* netifaces.* bettercap.*"
        ),
        imports=words("scapy pyshark netfilterqueue mitmproxy impacket pcapy"),
        shell=(
            r"^(tcpdump|tshark|wireshark|dumpcap|ettercap|bettercap|arpspoof|dnsspoof|dsniff|mitmproxy|mitmdump|responder|sslstrip|ngrep|airodump-ng|aireplay-ng|macchanger|urlsnarf|driftnet)\b",
            r"^ifconfig .*promisc|^ip link set .*promisc on",
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_TUNNEL,
        weight=Weight.HIGH,
        cwe=506,
        names=words(
            "pyngrok.* ngrok.* sshtunnel.* pproxy.* localtunnel.* stem.* socks.set_default_proxy socks.socksocket"
        ),
        shell=(
            r"^ssh\b.* -\w*[RLD]\b",
            r"^(ngrok|chisel|frpc|frps|cloudflared|localtunnel|lt|bore|tor|torify|torsocks|proxychains\d?|iodine|dnscat2?|autossh|wg|wg-quick|openvpn|zerotier-cli|tailscale|pagekite|serveo)\b",
        ),
        text=(r"(?i)\b[\w-]+\.(ngrok(-free)?\.(io|app)|loca\.lt|serveo\.net|trycloudflare\.com|localhost\.run)\b",),
    ),
    Rule(
        code=ScreenCode.NETWORK_REMOTE,
        weight=Weight.MEDIUM,
        names=words(
            "paramiko.SSHClient paramiko.Transport paramiko.* fabric.Connection asyncssh.connect netmiko.* pexpect.pxssh.pxssh spur.* parallel_ssh.* winrm.* telnetlib.*"
        ),
        shell=(r"^(ssh|sshpass|mosh|rsh|rlogin|telnet|xfreerdp|rdesktop|psexec|wmic /node|kubectl exec|plink)\b",),
    ),
    Rule(
        code=ScreenCode.NETWORK_NAMES,
        weight=Weight.LOW,
        names=words(
            "socket.gethostbyname socket.gethostbyname_ex socket.getaddrinfo socket.gethostbyaddr dns.resolver.query dns.resolver.Resolver"
        ),
        shell=(r"^(nslookup|dig|host|drill|resolvectl|whois)\b",),
    ),
    Rule(
        code=ScreenCode.NETWORK_METADATA,
        weight=Weight.CRITICAL,
        cwe=918,
        text=(
            r"169\.254\.169\.254|169\.254\.170\.2|100\.100\.100\.200|\bfd00:ec2::254\b|\bmetadata\.google\.internal\b|\bmetadata\.azure\b",
            r"\blatest/(meta-data|user-data|dynamic/instance-identity|api/token)\b|computeMetadata/v1|/metadata/(instance|identity)\b",
            r"\b2852039166\b|0xa9fea9fe|\b0251\.0376\.0251\.0376\b|::ffff:a9fe:a9fe|\[::ffff:169\.254",
            r"AWS_CONTAINER_CREDENTIALS_(RELATIVE|FULL)_URI",
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_LOCAL,
        weight=Weight.LOW,
        cwe=918,
        text=(
            r"https?://(localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[::1?\]|10\.\d+\.\d+\.\d+|192\.168\.\d+\.\d+|172\.(1[6-9]|2\d|3[01])\.\d+\.\d+|host\.docker\.internal|kubernetes\.default\S*)\b",
            r"\b(gopher|dict|ldap|jar|netdoc)://|\bfile:///(etc|proc|root|home|var|c:)",
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_DROP_SITE,
        weight=Weight.HIGH,
        cwe=506,
        text=(
            r"(?i)discord(app)?\.com/api/webhooks|api\.telegram\.org/bot|hooks\.slack\.com/services|webhook\.site|requestbin\.(net|com)|\b[a-z0-9]+\.requestcatcher\.com|hookbin\.com|beeceptor\.com|pipedream\.net",
            r"(?i)pastebin\.com/(raw|api)|paste\.ee|hastebin\.com|transfer\.sh|\bfile\.io\b|0x0\.st|anonfiles?\.com|gofile\.io|termbin\.com|ix\.io\b|temp\.sh|bashupload\.com|catbox\.moe",
            r"(?i)burpcollaborator\.net|interact\.sh|\boast(ify)?\.(pro|live|site|online|fun|me|com)\b|dnslog\.cn|canarytokens\.(com|org)|\bceye\.io|\brequestrepo\.com",
            r"(?i)\b[a-z2-7]{16,56}\.onion\b",
            r"(?i)https?://[\w.-]*\b(evil|attacker|malicious|hacker|exfil|c2|phish\w*|malware)\b[\w.-]*",
            r"(?i)https?://[\w-]*(attacker|malicious|evil|exfil|phishing|hacker|malware)[\w-]*\.[a-z]{2,}|\b(attacker|malicious|evil|hacker|phishing)[\w-]*\.(com|net|org|io|example|test|site|local|ru|xyz)\b",
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_FIREWALL,
        weight=Weight.HIGH,
        cwe=284,
        names=words("iptc.* pyufw.* nftables.*"),
        shell=(
            r"^(iptables\S*|ip6tables\S*|nft|ufw|firewall-cmd|ipset|netsh|pfctl|ebtables|route (add|del)|ip (route|rule|addr|link|netns) (add|del|set|change)|resolvectl dns|tc qdisc|arp -s)\b",
        ),
        script=(r">>?\s*/etc/(hosts|resolv\.conf|nsswitch\.conf|iptables\S*)\b",),
        text=(
            r"(?m)^[ \t]*(sudo )?(iptables|ufw|firewall-cmd|nft|netsh) +-?\w",
            r"(?i)drivers(\\\\?|/)etc(\\\\?|/)hosts",
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_FLOOD,
        weight=Weight.HIGH,
        cwe=400,
        shell=(
            r"^(hping3|slowloris|goldeneye|hulk|loic|hoic|mdk3|mdk4|siege|wrk|ab -n|t50|xerxes|torshammer)\b",
            r"^ping .*-f\b",
        ),
        text=(r"(?i)\bslowloris\b|\b(syn|udp|http) flood\b",),
        endless=words(
            "requests.get requests.post urllib.request.urlopen socket.socket().connect socket.socket().sendto"
        ),
    ),
    Rule(
        code=ScreenCode.NETWORK_UNVERIFIED,
        weight=Weight.LOW,
        cwe=295,
        names=words("ssl._create_unverified_context ssl.CERT_NONE"),
        shell=(r"^curl\b.* (-\w*k\w*|--insecure)\b", r"^wget\b.*--no-check-certificate"),
    ),
)
