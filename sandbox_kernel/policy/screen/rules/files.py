"""Files outside of scratch: the system's, other users', and all that deletes, encrypts or exposes them."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import Rule, Weight, words

_SYSTEM = (
    r"(/(etc|usr|bin|sbin|lib\w*|boot|dev|root|var|sys|proc|opt|System|Library)(/|\b)|[A-Za-z]:\\\\?(Windows|Program))"
)

RULES = (
    Rule(
        code=ScreenCode.FILE_DELETE,
        weight=Weight.LOW,
        names=words("os.remove os.unlink os.rmdir send2trash.send2trash posix.unlink posix.remove"),
        calls=words("pathlib.Path().unlink pathlib.Path().rmdir"),
        methods=words("unlink rmdir"),
        shell=(r"^(rm|unlink|rmdir|del|erase) ",),
    ),
    Rule(
        code=ScreenCode.FILE_DELETE_MANY,
        weight=Weight.MEDIUM,
        cwe=732,
        names=words("os.removedirs distutils.dir_util.remove_tree"),
        methods=words("rmtree"),
        shell=(
            r"^rm (-\S+ )*-\w*[rR]\w*f|^rm (-\S+ )*-\w*f\w*[rR]",
            r"^rm .*[*]",
            r"^find .* -delete\b",
            r"^find .*-exec rm\b",
        ),
        script=(r"\bxargs\b[^|;\n]*\brm\b",),
    ),
    Rule(
        code=ScreenCode.FILE_DELETE_SYSTEM,
        weight=Weight.CRITICAL,
        cwe=732,
        shell=(
            rf"^(rm|shred|unlink|rmdir|srm|wipe|truncate|mv) (.* )?[\"']?{_SYSTEM}(?!tmp\b)",
            r"^rm (.* )?(/|/\*|~|~/|~/\*|\$HOME\S*|/home\S*|\*/|\.\./?|--no-preserve-root.*|/mnt|/mnt/\*|/boot\S*)$",
            r"^find (/|~|/home|\$HOME|/etc|/var|/usr)( |/.* ).*(-delete|-exec rm)\b",
            r"^(rd|rmdir|del) /s\b",
        ),
    ),
    Rule(
        code=ScreenCode.FILE_WRITE_SYSTEM,
        weight=Weight.HIGH,
        cwe=732,
        shell=(
            rf"^(cp|install|tee|tee -a|ln|touch|mkdir|dd|sed -i\S*|chattr|rsync|scp|patch|chown|chmod|chgrp)\b.* (of=)?{_SYSTEM}(?!(tmp|null|stdout|stderr|shm|fd)\b)\S*$",
            rf"^(tee|touch|mkdir)( -\w+)* {_SYSTEM}(?!(tmp|null|stdout|stderr|shm|fd)\b)",
        ),
        script=(rf"(^|[^<\d&-])>>?\s*[\"']?{_SYSTEM}(?!(tmp|null|stdout|stderr|zero|shm|fd|tcp|udp)\b)",),
    ),
    Rule(code=ScreenCode.FILE_WRITE_OUTSIDE, weight=Weight.LOW),
    Rule(
        code=ScreenCode.FILE_READ_SYSTEM,
        weight=Weight.MEDIUM,
        cwe=200,
        shell=(
            rf"^(cat|head|tail|less|more|strings|xxd|od|base64|cp|grep|awk|cut|sort|tac|nl|ls|stat|file|find|tar|zip|gzip|diff|cmp|dd|rev) (.* )?(if=)?{_SYSTEM}(?!(tmp|null|zero|urandom|shm)\b)",
            r"^(cat|ls|find|head|tail|grep|tree|du) (.* )?(/|~|/home\S*|\$HOME\S*|/root\S*|/mnt|/srv\S*)$",
            r"^(getent|last|lastlog|lslogins)\b",
        ),
        script=(r"<\s*/(etc|root|var|proc)/",),
        text=(
            r"(?<![\w.])/etc/(passwd|group|hosts|issue|fstab|crontab|ssh|ssl/private|network|resolv\.conf|motd|hostname|environment|my\.cnf|mysql|nginx|apache2)\b(?!-)",
            r"(?<![\w.])/var/(log|mail|spool|backups|lib/(docker|mysql|postgresql))\b",
            r"(?<![\w.])/root/\S|(?<![\w.])/home/(\w+|\*)/\.",
            r"(?i)\b[a-z]:(\\\\?|/)(windows|users|programdata|program files)\b",
        ),
    ),
    Rule(
        code=ScreenCode.FILE_TRAVERSAL,
        weight=Weight.MEDIUM,
        cwe=22,
        text=(
            r"(\.\.[/\\]){4,}",
            r"(\.\.[/\\])+(etc|proc|root|home|var|usr|bin|windows)\b",
            r"(?i)(%2e%2e(%2f|/)|\.\.%2f){2,}",
            r"\.\.\.\.//",
            r"\bfully_trusted\b",
        ),
    ),
    Rule(
        code=ScreenCode.FILE_PERMISSION,
        weight=Weight.LOW,
        cwe=732,
        names=words("os.chmod os.fchmod os.lchmod os.chown os.fchown os.lchown shutil.chown os.umask os.chflags"),
        calls=words("pathlib.Path().chmod"),
        shell=(r"^(chmod|chown|chgrp|setfacl|chattr|icacls|takeown|umask)\b",),
    ),
    Rule(
        code=ScreenCode.FILE_LINK,
        weight=Weight.LOW,
        cwe=59,
        names=words("os.symlink os.link os.mkfifo os.mknod"),
        calls=words("pathlib.Path().symlink_to pathlib.Path().hardlink_to pathlib.Path().link_to"),
        methods=words("symlink_to hardlink_to"),
        shell=(r"^ln -",),
    ),
    Rule(
        code=ScreenCode.FILE_SEARCH,
        weight=Weight.MEDIUM,
        cwe=200,
        shell=(
            r"^find (/|~|/home|\$HOME|/etc|/var|/usr|/root|/opt)( |/|$)",
            r"^(locate|mlocate|updatedb)\b",
            r"^grep (-\S+ )*-\w*[rR]\w*.* (/|~|/home|/etc|/var|/root|\$HOME)\S*$",
            r"^ls (-\S+ )*-\w*R.* (/|~|/home|\$HOME)$",
        ),
    ),
    Rule(
        code=ScreenCode.FILE_DEVICE,
        weight=Weight.CRITICAL,
        cwe=732,
        shell=(
            r"^(mkfs\S*|fdisk|sfdisk|parted|wipefs|blkdiscard|hdparm|badblocks|mkswap|cryptsetup|sgdisk|lvremove|vgremove|nvme format|format [a-z]:)\b",
            r"^dd .*\bof=/dev/(?!null|stdout|shm)",
            r"^(shred|srm|wipe|scrub)\b",
        ),
        script=(r">\s*/dev/(sd[a-z]|hd[a-z]|vd[a-z]|nvme\d|mmcblk\d|mem|kmem|port)\b",),
        text=(
            r"(?<![\w.])/dev/(sd[a-z]|hd[a-z]|vd[a-z]|nvme\d\w*|mmcblk\d|disk\d|kmem|mem|port|kvm)\b",
            r"\\\\\.\\(PhysicalDrive|[A-Z]:)",
        ),
    ),
    Rule(
        code=ScreenCode.FILE_ENCRYPT,
        weight=Weight.HIGH,
        cwe=506,
        text=(
            r"(?i)\byour (important )?files (have been|are|were) (now )?encrypted\b|\bYOUR_FILES\b|(?i:decrypt(ion)? (key|instructions).{0,80}(bitcoin|btc|ransom|pay)|\bransom\b.{0,60}(bitcoin|btc|pay|decrypt))",
        ),
    ),
    Rule(
        code=ScreenCode.FILE_ARCHIVE,
        weight=Weight.MEDIUM,
        cwe=200,
        shell=(rf"^(tar|zip|7z|rar|gzip|cpio) .* ({_SYSTEM}|/home\b|~|/$|\$HOME)",),
    ),
    Rule(
        code=ScreenCode.FILE_EXPOSE,
        weight=Weight.HIGH,
        cwe=552,
        shell=(r"^(cp|mv|ln|rsync|install) .*(/var/www|/usr/share/nginx|/srv/http|public_html|htdocs|wwwroot)\b",),
        text=(r"/var/www(/|\b)|/usr/share/nginx/html|\bpublic_html\b|/srv/(http|www|ftp)\b",),
    ),
)
