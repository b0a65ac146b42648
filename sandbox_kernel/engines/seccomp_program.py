"""The rules of system calls as the kernel takes them: a program of classic BPF, for engines that take no rules.

The bytes are what a library such as libseccomp would hand over; a test compares both, call by call. A call that no rule
names fails with EPERM, one of another architecture ends its process. Pure.
"""

from __future__ import annotations

import struct

from .seccomp import EPERM, ArgumentCondition, SyscallRule

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The number that the kernel has for each (linux/audit.h), in the order of the columns below."""
X32 = 0x40000000
"""Calls of the x32 architecture have this bit, and the same number for the architecture."""

_NUMBERS = """
    access:21: faccessat:269:48 faccessat2:439:439 open:2: openat:257:56 openat2:437:437 creat:85: close:3:57
    close_range:436:436 read:0:63 readv:19:65 pread64:17:67 preadv:295:69 preadv2:327:286 write:1:64
    writev:20:66 pwrite64:18:68 pwritev:296:70 pwritev2:328:287 lseek:8:62 stat:4: fstat:5:80 lstat:6:
    newfstatat:262:79 statx:332:291 statfs:137:43 fstatfs:138:44 getdents:78: getdents64:217:61 mkdir:83:
    mkdirat:258:34 mknod:133: mknodat:259:33 rmdir:84: unlink:87: unlinkat:263:35 rename:82: renameat:264:38
    renameat2:316:276 link:86: linkat:265:37 symlink:88: symlinkat:266:36 readlink:89: readlinkat:267:78
    chmod:90: fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92: fchown:93:55 fchownat:260:54 lchown:94:
    umask:95:166 truncate:76:45 ftruncate:77:46 fallocate:285:47 fadvise64:221:223 readahead:187:213 flock:73:32
    fsync:74:82 fdatasync:75:83 sync:162:81 syncfs:306:267 sync_file_range:277:84 utime:132: utimes:235:
    utimensat:280:88 futimesat:261: getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10 listxattr:194:11
    llistxattr:195:12 flistxattr:196:13 setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 removexattr:197:14
    lremovexattr:198:15 fremovexattr:199:16 getcwd:79:17 chdir:80:49 fchdir:81:50 dup:32:23 dup2:33: dup3:292:24
    fcntl:72:25 pipe:22: pipe2:293:59 sendfile:40:71 copy_file_range:326:285 splice:275:76 tee:276:77
    inotify_init:253: inotify_init1:294:26 inotify_add_watch:254:27 inotify_rm_watch:255:28 memfd_create:319:279
    cachestat:451:451 poll:7: ppoll:271:73 select:23: pselect6:270:72 epoll_create:213: epoll_create1:291:20
    epoll_ctl:233:21 epoll_ctl_old:214: epoll_wait:232: epoll_wait_old:215: epoll_pwait:281:22
    epoll_pwait2:441:441 eventfd:284: eventfd2:290:19 signalfd:282: signalfd4:289:74 timerfd_create:283:85
    timerfd_settime:286:86 timerfd_gettime:287:87 restart_syscall:219:128 pause:34: brk:12:214 mmap:9:222
    munmap:11:215 mremap:25:216 mprotect:10:226 madvise:28:233 msync:26:227 mincore:27:232 mlock:149:228
    mlock2:325:284 munlock:150:229 mlockall:151:230 munlockall:152:231 membarrier:324:283 mseal:462:462
    pkey_alloc:330:289 pkey_free:331:290 pkey_mprotect:329:288 get_mempolicy:239:236 map_shadow_stack:453:453
    shmget:29:194 shmat:30:196 shmdt:67:197 shmctl:31:195 semget:64:190 semop:65:193 semtimedop:220:192
    semctl:66:191 msgget:68:186 msgsnd:69:189 msgrcv:70:188 msgctl:71:187 fork:57: vfork:58: execve:59:221
    execveat:322:281 exit:60:93 exit_group:231:94 wait4:61:260 waitid:247:95 kill:62:129 tkill:200:130
    tgkill:234:131 pidfd_open:434:434 pidfd_send_signal:424:424 getpid:39:172 getppid:110:173 gettid:186:178
    getpgid:121:155 setpgid:109:154 getpgrp:111: getsid:124:156 setsid:112:157 getrusage:98:165 times:100:153
    arch_prctl:158: set_tid_address:218:96 set_thread_area:205: get_thread_area:211: set_robust_list:273:99
    get_robust_list:274:100 rseq:334:293 futex:202:98 futex_waitv:449:449 futex_wake:454:454 futex_wait:455:455
    futex_requeue:456:456 getcpu:309:168 sched_yield:24:124 sched_getaffinity:204:123 sched_setaffinity:203:122
    sched_getparam:143:121 sched_setparam:142:118 sched_getscheduler:145:120 sched_setscheduler:144:119
    sched_getattr:315:275 sched_setattr:314:274 sched_get_priority_max:146:125 sched_get_priority_min:147:126
    sched_rr_get_interval:148:127 getpriority:140:141 ioprio_get:252:31 getrlimit:97:163 setrlimit:160:164
    prlimit64:302:261 rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigpending:127:136 rt_sigsuspend:130:133
    rt_sigtimedwait:128:137 rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240 rt_sigreturn:15:139
    sigaltstack:131:132 seccomp:317:277 landlock_create_ruleset:444:444 landlock_add_rule:445:445
    landlock_restrict_self:446:446 getuid:102:174 geteuid:107:175 getgid:104:176 getegid:108:177
    getresuid:118:148 getresgid:120:150 getgroups:115:158 setuid:105:146 setgid:106:144 setreuid:113:145
    setregid:114:143 setresuid:117:147 setresgid:119:149 setgroups:116:159 setfsuid:122:151 setfsgid:123:152
    capget:125:90 capset:126:91 uname:63:160 sysinfo:99:179 time:201: gettimeofday:96:169 clock_gettime:228:113
    clock_getres:229:114 clock_nanosleep:230:115 nanosleep:35:101 alarm:37: getitimer:36:102 setitimer:38:103
    timer_create:222:107 timer_settime:223:110 timer_gettime:224:108 timer_getoverrun:225:109
    timer_delete:226:111 getrandom:318:278 bind:49:200 listen:50:201 accept:43:202 accept4:288:242
    connect:42:203 getsockname:51:204 getpeername:52:205 getsockopt:55:209 setsockopt:54:208 sendto:44:206
    sendmsg:46:211 sendmmsg:307:269 recvfrom:45:207 recvmsg:47:212 recvmmsg:299:243 shutdown:48:210
    clone3:435:435 io_uring_setup:425:425 io_uring_enter:426:426 io_uring_register:427:427 memfd_secret:447:447
    userfaultfd:323:282 socket:41:198 socketpair:53:199 clone:56:220 personality:135:92 setpriority:141:140
    ioprio_set:251:30 prctl:157:167 ioctl:16:29 mount:165:40 umount2:166:39 pivot_root:155:41 chroot:161:51
    unshare:272:97 setns:308:268 ptrace:101:117 process_vm_readv:310:270 process_vm_writev:311:271
    init_module:175:105 finit_module:313:273 delete_module:176:106 bpf:321:280 perf_event_open:298:241
    keyctl:250:219 add_key:248:217 request_key:249:218 kexec_load:246:104 kexec_file_load:320:294
    open_by_handle_at:304:265 name_to_handle_at:303:264 fsopen:430:430 fsmount:432:432 move_mount:429:429
    open_tree:428:428 mount_setattr:442:442 iopl:172: ioperm:173: swapon:167:224 reboot:169:142 syslog:103:116
    acct:163:89 settimeofday:164:170 clock_settime:227:112 sethostname:170:161 fanotify_init:300:262
    quotactl:179:60 lookup_dcookie:212:18 kcmp:312:272 pidfd_getfd:438:438 modify_ldt:154: vmsplice:278:75
"""
"""Name, number on x86_64, number on aarch64; a call that an architecture does not have has no number there."""

_LOAD, _AND = 0x20, 0x54  # BPF_LD|W|ABS, BPF_ALU|AND|K
_EQUAL, _AT_LEAST, _MORE = 0x15, 0x35, 0x25  # BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_JMP|JGT|K
_RETURN = 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_TRACE, _USER_NOTIF = 0x7FF00000, 0x7FC00000
_ALL = 0xFFFFFFFF
LONGEST = 4096
"""Instructions that the kernel takes."""

Instruction = tuple[int, int, int, int]


def numbers(machine: str) -> dict[str, int]:
    """Return the numbers of the calls on an architecture. Raises LookupError for one that is not known."""
    column = 1 + list(ARCHITECTURES).index(machine) if machine in ARCHITECTURES else 0
    if not column:
        raise LookupError(machine)
    rows = (word.split(":") for word in _NUMBERS.split())
    return {row[0]: int(row[column]) for row in rows if row[column]}


def program(rules: tuple[SyscallRule, ...], machine: str, *, asks: bool = False) -> bytes:
    """Return the filter for an architecture, as `uname -m` names it. Raises LookupError for one that is not known.

    `asks`: who listens at it hears of watched calls. The low half of that verdict is the error number of the answer.
    """
    known = numbers(machine)
    plain: dict[int, int] = {}
    conditional: dict[int, list[SyscallRule]] = {}
    for rule in rules:
        for number in (known[name] for name in rule.names if name in known):
            if rule.conditions:
                conditional.setdefault(number, []).append(rule)
            else:
                plain[number] = _verdict(rule, asks)
    steps: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, X32),
        (_RETURN, 0, 0, _KILL_PROCESS),
    ]
    for low, high, verdict in _ranges(plain):
        steps += [(_AT_LEAST, 0, 2, low), (_MORE, 1, 0, high), (_RETURN, 0, 0, verdict)]
    for number, its in conditional.items():
        if number not in plain:
            block = [step for rule in its for step in _judged(rule, asks)]
            block.append((_RETURN, 0, 0, _ERRNO | EPERM))
            steps += [(_EQUAL, 0, len(block), number), *block]
    steps.append((_RETURN, 0, 0, _ERRNO | EPERM))
    if len(steps) > LONGEST:
        raise AssertionError(f"the filter has {len(steps)} instructions, over the limit of {LONGEST}")
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _verdict(rule: SyscallRule, asks: bool) -> int:
    if rule.watched:
        return _USER_NOTIF | (rule.error or 0) if asks else _TRACE
    return _ALLOW if rule.error is None else _ERRNO | rule.error


def _ranges(verdicts: dict[int, int]) -> list[tuple[int, int, int]]:
    """Return stretches of numbers with one verdict: first, last, verdict."""
    found: list[tuple[int, int, int]] = []
    for number, verdict in sorted(verdicts.items()):
        if found and found[-1][1:] == (number - 1, verdict):
            found[-1] = (found[-1][0], number, verdict)
        else:
            found.append((number, number, verdict))
    return found


def _judged(rule: SyscallRule, asks: bool) -> list[Instruction]:
    """Return what gives the rule's verdict if every condition is met, and goes on after it if not."""
    tests: list[list[Instruction]] = [half for one in rule.conditions for half in _halves(one)]
    left = sum(len(test) for test in tests) + 1
    steps: list[Instruction] = []
    for test in tests:
        left -= len(test)
        code, _, _, value = test[-1]
        steps += [*test[:-1], (code, 0, left, value)]
    return [*steps, (_RETURN, 0, 0, _verdict(rule, asks))]


def _halves(one: ArgumentCondition) -> list[list[Instruction]]:
    """Return a comparison for each half of a 64-bit argument that counts; both architectures have the low one first."""
    found = []
    mask = _ALL << 32 | _ALL if one.mask is None else one.mask
    for shift in (0, 32):
        bits = mask >> shift & _ALL
        if bits:
            narrow = [] if bits == _ALL else [(_AND, 0, 0, bits)]
            load = (_LOAD, 0, 0, 16 + 8 * one.argument + shift // 8)
            found.append([load, *narrow, (_EQUAL, 0, 0, one.value >> shift & _ALL)])
    return found
