"use strict";
(self["webpackChunksandbox_kernel"] = self["webpackChunksandbox_kernel"] || []).push([["lib_index_js"],{

/***/ "./lib/index.js"
(__unused_webpack_module, __webpack_exports__, __webpack_require__) {

// ESM COMPAT FLAG
__webpack_require__.r(__webpack_exports__);

// EXPORTS
__webpack_require__.d(__webpack_exports__, {
  "default": () => (/* binding */ lib)
});

// EXTERNAL MODULE: consume shared module (default) @jupyterlab/application@^4.2.0 (singleton)
var application_4_2_singleton_ = __webpack_require__("webpack/sharing/consume/default/@jupyterlab/application");
// EXTERNAL MODULE: consume shared module (default) @jupyterlab/apputils@^4.3.0 (singleton)
var apputils_4_3_singleton_ = __webpack_require__("webpack/sharing/consume/default/@jupyterlab/apputils");
// EXTERNAL MODULE: consume shared module (default) @jupyterlab/codemirror@^4.2.0 (singleton)
var codemirror_4_2_singleton_ = __webpack_require__("webpack/sharing/consume/default/@jupyterlab/codemirror");
// EXTERNAL MODULE: consume shared module (default) @jupyterlab/console@^4.2.0 (singleton)
var console_4_2_singleton_ = __webpack_require__("webpack/sharing/consume/default/@jupyterlab/console");
// EXTERNAL MODULE: consume shared module (default) @jupyterlab/filebrowser@^4.2.0 (singleton)
var filebrowser_4_2_singleton_ = __webpack_require__("webpack/sharing/consume/default/@jupyterlab/filebrowser");
// EXTERNAL MODULE: consume shared module (default) @jupyterlab/notebook@^4.2.0 (singleton)
var notebook_4_2_singleton_ = __webpack_require__("webpack/sharing/consume/default/@jupyterlab/notebook");
// EXTERNAL MODULE: consume shared module (default) @jupyterlab/statusbar@^4.2.0 (singleton)
var statusbar_4_2_singleton_ = __webpack_require__("webpack/sharing/consume/default/@jupyterlab/statusbar");
// EXTERNAL MODULE: consume shared module (default) @jupyterlab/ui-components@^4.2.0 (singleton)
var ui_components_4_2_singleton_ = __webpack_require__("webpack/sharing/consume/default/@jupyterlab/ui-components");
// EXTERNAL MODULE: consume shared module (default) @jupyterlab/coreutils@^6.2.0 (singleton)
var coreutils_6_2_singleton_ = __webpack_require__("webpack/sharing/consume/default/@jupyterlab/coreutils");
// EXTERNAL MODULE: consume shared module (default) @jupyterlab/services@^7.2.0 (singleton)
var services_7_2_singleton_ = __webpack_require__("webpack/sharing/consume/default/@jupyterlab/services");
;// ./lib/parse.js
/**
 * What a kernel says, as values: each number of its type and within its range, each text of bounded length, or nothing.
 *
 * Cells run behind the kernel, and a kernel may be another one than it says: nothing of what it sends is used that did
 * not come through here. Pure.
 */
const MAX_BYTES = 2 ** 50;
const LONGEST_SECONDS = 1e9;
const LONGEST_PATH = 1024;
const MAX_NAMES = 50;
const LONGEST_NAME = 253;
/** Controls, and what turns the direction of the text around it. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
function record(value) {
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {};
}
/** A text on one line, in which every character can be seen; "" for what is none. */
function parse_text(value, longest) {
    return typeof value === 'string' ? value.slice(0, longest).replace(INVISIBLE, '\ufffd') : '';
}
/** A whole number from 0 to `most`; null for all else. */
function count(value, most) {
    return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most ? value : null;
}
/** A duration; null for what is none. */
function seconds(value) {
    return typeof value === 'number' && value >= 0 && value <= LONGEST_SECONDS ? value : null;
}
function names(value) {
    const list = Array.isArray(value) ? value.slice(0, MAX_NAMES) : [];
    return list.map(one => parse_text(one, LONGEST_NAME)).filter(one => one !== '');
}
/** The path of a file of scratch, as the kernel takes it back; null for what could not be one. */
function path(value) {
    if (typeof value !== 'string' || value.length > LONGEST_PATH || value.search(/[\u0000-\u001f\u007f]/) >= 0) {
        return null;
    }
    const parts = value.split('/');
    return parts.some(part => part === '' || part === '.' || part === '..') ? null : value;
}
const CHUNK_BYTES = 2 ** 20;
/** A page holds what it downloads, and reads what it uploads piece by piece. */
const DOWNLOAD_BYTES = 2 ** 31;
/** Read a kernel_info_reply; null if it is not of our kernel, or of a version that is not known here. */
function about(info) {
    const content = record(info);
    const sandbox = record(content['sandbox']);
    const files = record(sandbox['file_messages']);
    const known = files['version'] === 1 && record(sandbox['state_message'])['version'] === 1;
    if (content['implementation'] !== 'sandbox_kernel' || !known) {
        return null;
    }
    const limits = record(sandbox['limits']);
    const outputs = parse_text(sandbox['outputs'], 20);
    return {
        chunkBytes: Math.max(1, count(files['chunk_bytes'], CHUNK_BYTES) ?? CHUNK_BYTES),
        fileBytes: count(limits['file_limit'], MAX_BYTES) ?? DOWNLOAD_BYTES,
        memoryBytes: count(limits['memory'], MAX_BYTES),
        scratchBytes: count(limits['scratch_size'], MAX_BYTES),
        cpus: seconds(limits['cpus']),
        cellSeconds: seconds(limits['cell_timeout']),
        idleSeconds: seconds(limits['idle_timeout']),
        outputs: ['safe', 'strict', 'trusted'].includes(outputs) ? outputs : 'unknown',
        screens: record(sandbox['screen_message'])['version'] === 1,
        network: names(sandbox['network']),
        secrets: names(sandbox['secrets'])
    };
}
const MAX_ROWS = 200;
const LONGEST_REASON = 500;
function behaviour(value) {
    const said = record(value);
    const rows = Array.isArray(said['rows']) ? said['rows'].slice(0, MAX_ROWS).map(record) : [];
    return {
        score: count(said['risk_score'], 100) ?? 0,
        safe: said['is_safe'] === true,
        rows: rows.map(row => ({
            code: parse_text(row['code'], LONGEST_NAME),
            score: count(row['score'], 100) ?? 0,
            times: count(row['count'], MAX_BYTES) ?? 1,
            cell: count(row['first_cell'], MAX_BYTES),
            reason: parse_text(row['reason'], LONGEST_REASON)
        }))
    };
}
/** Sentences that speak against a text. */
function reasons(content) {
    const list = Array.isArray(content['reasons']) ? content['reasons'].slice(0, MAX_NAMES) : [];
    return list.map(one => parse_text(one, LONGEST_REASON)).filter(one => one !== '');
}
const STANDINGS = ['none', 'starting', 'idle', 'busy'];
function state(content) {
    const standing = content['state'];
    return {
        state: STANDINGS.includes(standing) ? standing : 'none',
        problem: parse_text(content['problem'], 1000),
        idleSeconds: seconds(content['idle_seconds']),
        cellSeconds: seconds(content['cell_seconds']),
        memoryBytes: count(content['memory_bytes'], MAX_BYTES),
        scratchBytes: count(content['scratch_bytes'], MAX_BYTES),
        processes: count(content['processes'], 2 ** 22),
        behaviour: behaviour(content['behaviour'])
    };
}
/** One page of a list of files, without those whose name or size is none. */
function page(content, most) {
    const files = [];
    for (const one of Array.isArray(content['files']) ? content['files'].slice(0, most) : []) {
        const entry = record(one);
        const name = path(entry['path']);
        const size = count(entry['size'], MAX_BYTES);
        if (name !== null && size !== null) {
            files.push({ path: name, size, modified: time(entry['modified']) });
        }
    }
    return { files, more: content['more'] === true, complete: content['complete'] === true };
}
function time(value) {
    return typeof value === 'number' && value >= 0 && value < 2 ** 35 ? value : null;
}
/** The name under which a browser saves a file: one part, nothing hidden, nothing that a system reads as a device. */
function downloadName(from) {
    const last = from.slice(from.lastIndexOf('/') + 1);
    let name = last.replace(INVISIBLE, '_').replace(/[\\/:*?"<>|]/g, '_');
    name = name.replace(/^[.\s~-]+/, '_').replace(/[.\s]+$/, '');
    if (/^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i.test(name)) {
        name = `_${name}`;
    }
    if (name.length > 120) {
        const dot = name.lastIndexOf('.');
        const ending = dot > 0 && name.length - dot <= 12 ? name.slice(dot) : '';
        name = name.slice(0, 120 - ending.length) + ending;
    }
    return name || 'download';
}

;// ./lib/words.js
/** What is shown of a sandbox, in words. Pure. */
function bytes(value) {
    if (value === null) {
        return '?';
    }
    let rest = value;
    for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
        if (rest < 1024) {
            return `${unit === 'B' || rest >= 100 ? Math.round(rest) : Number(rest.toFixed(1))} ${unit}`;
        }
        rest /= 1024;
    }
    return `${Number(rest.toFixed(1))} TiB`;
}
function duration(value) {
    if (value === null) {
        return '?';
    }
    const whole = Math.round(value);
    if (whole < 60) {
        return `${whole} s`;
    }
    if (whole < 3600) {
        return whole < 600 && whole % 60 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.round(whole / 60)} min`;
    }
    return `${Number((whole / 3600).toFixed(1))} h`;
}
function network(about) {
    if (about.network.length === 0) {
        return 'no network';
    }
    return about.network.length === 1 ? '1 network rule' : `${about.network.length} network rules`;
}
function left(state) {
    if (state.state === 'busy') {
        return state.cellSeconds === null ? 'cell runs' : `cell has ${duration(state.cellSeconds)}`;
    }
    return state.idleSeconds === null ? '' : `ends in ${duration(state.idleSeconds)} if unused`;
}
/** One line: what it uses, how long it has, what it may reach. */
function line(about, state) {
    if (state === null) {
        return 'Sandbox: no answer';
    }
    if (state.state === 'none') {
        return state.problem === '' ? 'Sandbox: none yet' : 'Sandbox: ended';
    }
    if (state.state === 'starting') {
        return 'Sandbox: starting';
    }
    const used = `${bytes(state.memoryBytes)} of ${bytes(about.memoryBytes)}`;
    return [`Sandbox: ${used}`, left(state), network(about)].filter(part => part !== '').join(' · ');
}
function behaviourLine(said) {
    return `Behaviour: ${said.score} of 100 points, ${said.safe ? 'safe' : 'not safe'}`;
}
/** Rows of a name and a value each. */
function rows(about, state) {
    const now = state !== null && (state.state === 'idle' || state.state === 'busy') ? state : null;
    const of = (used, limit) => now === null ? `${bytes(limit)} at most` : `${bytes(used ?? null)} of ${bytes(limit)}`;
    const result = [
        ['State', state === null ? 'no answer' : state.state],
        ['Memory', of(now?.memoryBytes, about.memoryBytes)],
        ['Files', of(now?.scratchBytes, about.scratchBytes)],
        ['Processors', about.cpus === null ? '?' : String(about.cpus)],
        ['Time of a cell', `${duration(about.cellSeconds)} at most${now?.cellSeconds == null ? '' : `, ${duration(now.cellSeconds)} left`}`],
        ['Unused', `ends after ${duration(about.idleSeconds)}${now?.idleSeconds == null ? '' : `, in ${duration(now.idleSeconds)}`}`],
        ['Network', about.network.length === 0 ? 'none' : about.network.join(', ')],
        ['Secrets', about.secrets.length === 0 ? 'none' : about.secrets.join(', ')],
        ['Outputs', about.outputs]
    ];
    if (state !== null && state.problem !== '') {
        result.push(['Ended', state.problem]);
    }
    return result;
}

;// ./lib/sandbox.js
/**
 * The sandbox behind one kernel: how it stands, and its files, over messages on the kernel's control channel.
 *
 * The messages are described in docs/jupyter-server.md. Every answer is bounded in time, and read by parse.ts.
 */



const PATIENCE_MS = 90_000;
/** More than a start may take, which a file request may begin. */
const STATE_PATIENCE_MS = 10_000;
/** Whoever pastes does not wait longer. */
const SCREEN_PATIENCE_MS = 2000;
const PAGE = 1000;
const MAX_FILES = 5000;
/** Why a request was refused or not answered, in words for a person. */
class Refused extends Error {
}
class Sandbox {
    kernel;
    about;
    constructor(kernel, about) {
        this.kernel = kernel;
        this.about = about;
    }
    async state() {
        return state((await this.ask('state', {}, [], STATE_PATIENCE_MS)).content);
    }
    /** What speaks against code that is in no cell yet. */
    async reasons(code) {
        return reasons((await this.ask('screen', { code }, [], SCREEN_PATIENCE_MS)).content);
    }
    /** The files of scratch, `MAX_FILES` at most; `complete` says whether these are all. */
    async list() {
        const files = [];
        let after = '';
        while (files.length < MAX_FILES) {
            const { content } = await this.ask('file_list', { after, limit: PAGE });
            const next = page(content, PAGE);
            files.push(...next.files);
            const last = next.files.at(-1)?.path;
            if (!next.more || !next.complete || last === undefined || last === after) {
                return { files, complete: next.complete && !next.more };
            }
            after = last;
        }
        return { files: files.slice(0, MAX_FILES), complete: false };
    }
    /** Write a file, chunk by chunk; under its name once it is whole. */
    async upload(source, path, progress, signal) {
        if (source.size > this.about.fileBytes) {
            const most = bytes(this.about.fileBytes);
            throw new Refused(`it has ${bytes(source.size)}, and one file may have ${most}. Split it, or install the kernel with a larger ` +
                `limit: sandbox-kernel install --scratch-size SIZE (settings scratch_size and file_limit)`);
        }
        let offset = 0;
        let token = '';
        for (;;) {
            const chunk = await source.slice(offset, offset + this.about.chunkBytes).arrayBuffer();
            const final = offset + chunk.byteLength >= source.size;
            if (signal.aborted) {
                if (token !== '') {
                    await this.ask('file_write', { path, upload: token, abort: true }, [new ArrayBuffer(0)]);
                }
                throw new Refused('given up');
            }
            const given = token === '' ? {} : { upload: token };
            const { content } = await this.ask('file_write', { path, offset, final, size: source.size, ...given }, [chunk]);
            offset += chunk.byteLength;
            progress(offset, source.size);
            if (final) {
                return;
            }
            token = parse_text(content['upload'], 100);
            if (token === '' || chunk.byteLength === 0) {
                throw new Refused('the kernel does not go on with it');
            }
        }
    }
    /** Read a file, as bytes that no browser takes for a page. */
    async download(path, progress, signal) {
        const parts = [];
        let offset = 0;
        let etag = '';
        let total = null;
        for (;;) {
            if (signal.aborted) {
                throw new Refused('given up');
            }
            const given = etag === '' ? {} : { etag };
            const { content, buffers } = await this.ask('file_read', { path, offset, size: this.about.chunkBytes, ...given });
            const size = count(content['size'], this.about.fileBytes);
            const part = buffers.length === 1 ? copied(buffers[0]) : null;
            const honest = size !== null && (total === null || size === total) && part !== null;
            if (!honest || part.byteLength > this.about.chunkBytes || offset + part.byteLength > size) {
                throw new Refused('the kernel sent what is no part of a file');
            }
            if (size > DOWNLOAD_BYTES) {
                throw new Refused(`it has ${bytes(size)}, and a page holds up to ${bytes(DOWNLOAD_BYTES)}. Have it copied to a folder: ` +
                    'sandbox-kernel install --downloads FOLDER (setting downloads)');
            }
            total = size;
            parts.push(part);
            offset += part.byteLength;
            progress(offset, total);
            if (offset === total) {
                return new Blob(parts, { type: 'application/octet-stream' });
            }
            etag = parse_text(content['etag'], 200);
            if (part.byteLength === 0 || etag === '') {
                throw new Refused('the kernel does not go on with it');
            }
        }
    }
    async remove(path) {
        await this.ask('file_remove', { path });
    }
    /** Send one request and return its reply. Raises `Refused`. */
    async ask(what, fields, buffers = [], patience = PATIENCE_MS) {
        const kernel = this.kernel;
        if (kernel.isDisposed || kernel.status === 'dead' || kernel.connectionStatus !== 'connected') {
            throw new Refused('the kernel is not connected');
        }
        // The types of messages that JupyterLab knows of are a closed list; ours are none of them.
        const message = services_7_2_singleton_.KernelMessage.createMessage({
            msgType: `sandbox_${what}_request`,
            channel: 'control',
            session: kernel.clientId,
            username: kernel.username,
            content: { version: 1, ...fields },
            buffers
        });
        const future = kernel.sendControlMessage(message, true, false);
        future.done.catch(() => undefined);
        let timer;
        let ended;
        try {
            const reply = await new Promise((resolve, reject) => {
                future.onReply = resolve;
                timer = window.setTimeout(() => reject(new Refused('the kernel did not answer in time')), patience);
                ended = () => {
                    if (kernel.isDisposed || ['dead', 'restarting', 'autorestarting'].includes(kernel.status)) {
                        reject(new Refused('the kernel went away'));
                    }
                };
                kernel.statusChanged.connect(ended);
                kernel.disposed.connect(ended);
            });
            const content = record(reply.content);
            if (content['status'] !== 'ok') {
                throw new Refused(parse_text(content['evalue'], 500) || 'the kernel refused it');
            }
            return { content, buffers: reply.buffers ?? [] };
        }
        finally {
            window.clearTimeout(timer);
            if (ended !== undefined) {
                kernel.statusChanged.disconnect(ended);
                kernel.disposed.disconnect(ended);
            }
            future.dispose();
        }
    }
}
/** The bytes of a buffer, on their own: a message's buffers share one piece of memory. */
function copied(buffer) {
    if (buffer instanceof ArrayBuffer) {
        return buffer.slice(0);
    }
    if (ArrayBuffer.isView(buffer)) {
        return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength).slice().buffer;
    }
    return null;
}

;// ./lib/bring.js
/** Files of the server's folders, for the sandbox. */



class Bring {
    contents;
    settings;
    current;
    constructor(contents, settings, current) {
        this.contents = contents;
        this.settings = settings;
        this.current = current;
    }
    /** What a file is called in the sandbox: its path from the notebook's folder if it lies below, else its name. */
    target(path) {
        const local = this.contents.localPath(path);
        const folder = coreutils_6_2_singleton_.PathExt.dirname(this.contents.localPath(this.current.session?.path ?? ''));
        const start = folder === '' ? '' : `${folder}/`;
        return local.startsWith(start) ? local.slice(start.length) : coreutils_6_2_singleton_.PathExt.basename(local);
    }
    async fetch(path, signal) {
        const url = await this.contents.getDownloadUrl(path);
        const answer = await services_7_2_singleton_.ServerConnection.makeRequest(url, { method: 'GET', cache: 'no-store', signal }, this.settings);
        if (!answer.ok) {
            throw new Refused(`the server does not give it (${answer.status})`);
        }
        return answer.blob();
    }
}

// EXTERNAL MODULE: consume shared module (default) @lumino/signaling@^2.1.0 (singleton)
var signaling_2_1_singleton_ = __webpack_require__("webpack/sharing/consume/default/@lumino/signaling");
;// ./lib/current.js
/**
 * Which sandbox is meant: that of the notebook or console that was used last, and how it stands.
 *
 * A kernel is ours if the server starts it with our module, and it says so itself: the first a kernel cannot forge, so
 * one of another kind is asked nothing and given nothing.
 */



const EVERY_MS = 5000;
const INFO_MS = 120_000;
/** Between two looks that a kernel's messages bring about. */
const GAP_MS = 1500;
function isOurs(spec) {
    const argv = spec?.argv;
    return Array.isArray(argv) && argv.some((word, place) => word === '-m' && argv[place + 1] === 'sandbox_kernel');
}
class Current {
    specs;
    context = null;
    kernel = null;
    found = null;
    stands = null;
    looking = null;
    lastLook = 0;
    soon;
    _changed = new signaling_2_1_singleton_.Signal(this);
    _worked = new signaling_2_1_singleton_.Signal(this);
    constructor(specs) {
        this.specs = specs;
        window.setInterval(() => {
            if (document.visibilityState === 'visible') {
                void this.look();
            }
        }, EVERY_MS);
    }
    /** Another sandbox is meant, or how it stands is known anew. */
    get changed() {
        return this._changed;
    }
    /** A cell has ended, so files may be others. */
    get worked() {
        return this._worked;
    }
    get session() {
        return this.context;
    }
    /** The sandbox; null if there is no kernel, or it is not ours. */
    get sandbox() {
        return this.found;
    }
    /** How the sandbox stands; null if it is not known. */
    get state() {
        return this.stands;
    }
    /** From now on, what runs behind this notebook or console is meant. */
    use(context) {
        if (context === this.context) {
            return;
        }
        this.context?.kernelChanged.disconnect(this.onKernel, this);
        this.context = context !== null && !context.isDisposed ? context : null;
        this.context?.kernelChanged.connect(this.onKernel, this);
        this.context?.disposed.connect(this.onGone, this);
        this.onKernel();
    }
    /** Ask how the sandbox stands, unless this one is being asked. */
    async look() {
        const kernel = this.kernel;
        if (kernel === null || kernel.isDisposed || this.looking === kernel) {
            return;
        }
        this.looking = kernel;
        this.lastLook = Date.now();
        try {
            const sandbox = await this.sandboxOf(kernel);
            const state = sandbox === null ? null : await sandbox.state().catch(() => null);
            if (this.kernel === kernel) {
                this.found = sandbox;
                this.stands = state;
                this._changed.emit();
            }
        }
        finally {
            if (this.looking === kernel) {
                this.looking = null;
            }
        }
    }
    async sandboxOf(kernel) {
        await this.specs.ready;
        if (!isOurs(this.specs.specs?.kernelspecs[kernel.name])) {
            return null;
        }
        const known = about(await within(kernel.info, INFO_MS));
        return known === null ? null : new Sandbox(kernel, known);
    }
    onKernel() {
        this.kernel?.anyMessage.disconnect(this.onMessage, this);
        this.kernel?.statusChanged.disconnect(this.lookSoon, this);
        this.kernel = this.context?.session?.kernel ?? null;
        this.kernel?.anyMessage.connect(this.onMessage, this);
        this.kernel?.statusChanged.connect(this.lookSoon, this);
        this.found = null;
        this.stands = null;
        this._changed.emit();
        void this.look();
    }
    onGone(context) {
        if (context === this.context) {
            this.use(null);
        }
    }
    onMessage(_, { msg, direction }) {
        if (direction === 'recv' && msg.header.msg_type === 'execute_reply') {
            this._worked.emit();
        }
    }
    lookSoon() {
        if (this.soon === undefined) {
            const wait = Math.max(50, this.lastLook + GAP_MS - Date.now());
            this.soon = window.setTimeout(() => {
                this.soon = undefined;
                void this.look();
            }, wait);
        }
    }
}
function within(promise, milliseconds) {
    return Promise.race([
        promise.catch(() => null),
        new Promise(resolve => window.setTimeout(() => resolve(null), milliseconds))
    ]);
}

;// ./lib/libraries.js
/**
 * Libraries of figures, found in the notebook that they are in: a cell that is out of sight may have no frame to ask.
 *
 * What a frame lacks is read from its own markup, where the library's place is empty and has its hash. A frame looks at
 * the hash of what it gets.
 */
/** Libraries that one frame is given. */
const MAX_LIBRARIES = 8;
/** Places of libraries that are looked at in one frame's markup. */
const PLACES = 100;
/** How a place is marked in the markup of a frame, and in an output, where it is escaped once more. */
const OF_FRAME = /data-packed=&quot;([0-9a-f]{64}):/g;
const OF_OUTPUT = /data-packed=&amp;quot;([0-9a-f]{64}):/g;
/** Send a frame of a notebook's output all libraries that it lacks and that some output of the notebook has. */
function giveLibraries(frame, notebooks) {
    const panel = notebooks.find(one => one.node.contains(frame));
    const lacks = panel ? lacking(frame.srcdoc) : new Set();
    if (panel && lacks.size > 0) {
        for (const [name, code] of found(panel, lacks)) {
            frame.contentWindow?.postMessage({ sandboxKernelOf: name, sandboxKernelCode: code }, '*');
        }
    }
}
function lacking(markup) {
    const names = new Set();
    let places = 0;
    for (const { 1: name, index } of markup.matchAll(OF_FRAME)) {
        places += 1;
        if (places > PLACES || names.size >= MAX_LIBRARIES) {
            break;
        }
        if (name !== undefined && after(markup, index) === '') {
            names.add(name);
        }
    }
    return names;
}
/** The packed texts under these names, each as it is written in some output of the notebook. */
function found(panel, names) {
    const codes = new Map();
    for (const cell of panel.content.model?.cells ?? []) {
        const outputs = cell.type === 'code' ? cell.outputs : null;
        for (let number = 0; number < (outputs?.length ?? 0); number += 1) {
            const html = outputs?.get(number).data['text/html'];
            const source = Array.isArray(html) ? html.join('') : html;
            const seen = new Set();
            for (const { 1: name, index } of typeof source === 'string' ? source.matchAll(OF_OUTPUT) : []) {
                // Each name once: what stands after a mark may be far away.
                if (name !== undefined && names.has(name) && !codes.has(name) && !seen.has(name)) {
                    seen.add(name);
                    const code = after(source, index);
                    if (code !== '') {
                        codes.set(name, code);
                    }
                }
            }
        }
        if (codes.size === names.size) {
            break;
        }
    }
    return codes;
}
/** What stands between the end of the tag at a place and the next one. */
function after(markup, place) {
    const start = markup.indexOf('>', place) + 1;
    return start > 0 ? markup.slice(start, markup.indexOf('<', start)) : '';
}

;// ./lib/frames.js
/**
 * Frames of outputs: as high as what they show, in the colours of the theme, with the libraries that they lack.
 *
 * A frame is a program of a cell's, and the page reads no message of one. To read a value is to build it, and one message
 * can keep a page for a minute. So a frame gets ports when it loads, and which port a message came over is all that it
 * says: that a binary digit of its height changed, or that it wants a library. What a message holds is never looked at,
 * so its size does not matter. A document that sends more than `MESSAGES` loses its ports. What goes in are two colours,
 * and libraries of the same notebook.
 */

const FRAMES = '.jp-OutputArea-output iframe[sandbox="allow-scripts"]';
const LOWEST = 24;
const HIGHEST = 1600;
/** Heights that one frame is given, so that none moves the page for ever. */
const MAX_HEIGHTS = 40;
/** Ports of a frame: one for each binary digit of its height in CSS pixels, and one to want libraries with. */
const DIGITS = 11;
/** Messages of one document: as many heights as it is given, if all digits change each time, and some more. */
const MESSAGES = 600;
/** Times that a document gets what it wants. */
const GIVEN = 16;
/** A height is whole when no digit has changed for so long: each port has an order of its own. */
const QUIET_MS = 40;
/** Between two times that a frame gets ports: one may load itself again and again. */
const frames_GAP_MS = 1000;
function serveFrames(themes, notebooks) {
    const known = new WeakMap();
    const hand = (frame) => {
        let fitted = known.get(frame);
        if (fitted === undefined) {
            const never = { said: null, grew: 0, left: MAX_HEIGHTS, handed: -Infinity, waits: undefined, close: () => undefined };
            fitted = { set: frame.style.height, ...never };
            known.set(frame, fitted);
        }
        const rest = fitted.handed + frames_GAP_MS - performance.now();
        if (rest > 0) {
            // One timer for all loads meanwhile. It may fire a little early.
            window.clearTimeout(fitted.waits);
            fitted.waits = window.setTimeout(hand, rest + 1, frame);
            return;
        }
        fitted.handed = performance.now();
        fitted.close();
        const ports = listen(frame, fitted, () => {
            if (notebooks !== null) {
                giveLibraries(frame, notebooks);
            }
        });
        frame.contentWindow?.postMessage({ sandboxKernelTheme: colours(themes) }, '*', ports);
    };
    document.querySelectorAll(FRAMES).forEach(hand);
    document.addEventListener('load', ({ target }) => {
        if (target instanceof HTMLIFrameElement && target.matches(FRAMES)) {
            hand(target);
        }
    }, true);
    themes?.themeChanged.connect(() => {
        for (const frame of document.querySelectorAll(FRAMES)) {
            frame.contentWindow?.postMessage({ sandboxKernelTheme: colours(themes) }, '*');
        }
    });
}
/** Listen to one document of a frame, until it has said too much; return the ends of the ports that it gets. */
function listen(frame, fitted, give) {
    const channels = Array.from({ length: DIGITS + 1 }, () => new MessageChannel());
    let messages = 0;
    let given = 0;
    let height = 0;
    let fits;
    let gives;
    fitted.close = () => {
        channels.forEach(channel => channel.port1.close());
        window.clearTimeout(fits);
        window.clearTimeout(gives);
    };
    channels.forEach(({ port1 }, digit) => {
        // It takes no event, so that nothing can be read.
        port1.onmessage = () => {
            messages += 1;
            if (messages > MESSAGES) {
                fitted.close();
            }
            else if (digit < DIGITS) {
                height ^= 1 << digit;
                window.clearTimeout(fits);
                fits = window.setTimeout(() => fit(frame, fitted, Math.min(HIGHEST, Math.max(LOWEST, height))), QUIET_MS);
            }
            else if (gives === undefined && given < GIVEN) {
                given += 1;
                gives = window.setTimeout(() => {
                    gives = undefined;
                    give();
                }, QUIET_MS);
            }
        };
    });
    return channels.map(channel => channel.port2);
}
function fit(frame, fitted, said) {
    const before = fitted.said ?? frame.offsetHeight;
    const grown = said - before;
    if (fitted.left <= 0 || frame.style.height !== fitted.set || grown === 0) {
        fitted.said ??= said;
        return;
    }
    if (grown === fitted.grew) {
        fitted.left = 0; // it is a little higher or lower than its window, whatever height that has
        return;
    }
    frame.style.height = `${said}px`;
    fitted.left -= 1;
    fitted.set = frame.style.height;
    fitted.said = said;
    fitted.grew = grown;
}
/** The colours of the page around a frame. */
function colours(themes) {
    const probe = document.createElement('div');
    probe.style.color = 'var(--jp-content-font-color1)';
    probe.style.backgroundColor = 'var(--jp-layout-color0)';
    document.body.append(probe);
    const { color, backgroundColor } = getComputedStyle(probe);
    probe.remove();
    return { color, background: backgroundColor, dark: themes?.theme != null && !themes.isLight(themes.theme) };
}

;// ./lib/heavy.js
/**
 * Outputs of a sandbox that a browser may need long to lay out are shown in a frame, which Chromium draws in a process
 * apart from the page's: what they cost, they cost the frame.
 *
 * The policy of the kernel bounds what an output may cost, and what is here begins at a small share of that. SVG and
 * Markdown come from it as HTML, so this is all there is. The frame runs no script and loads nothing. It does not know
 * the height of what it shows, so it scrolls, as long outputs do. A program, which only `outputs = trusted` lets pass as
 * it is, stays in the page.
 */
const TYPE = 'text/html';
/** Elements, each as often as it spans, and letters: more of them than in a table of 60 rows and 20 columns. */
const MAX_WEIGHT = 3000;
const LETTERS_OF_ELEMENT = 50;
/** Characters of a source that is small, whatever it says that it spans. */
const FEW = 500;
/** What is in a picture is not laid out. */
const PICTURES = /data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*/g;
/** Of a frame, in CSS pixels; it can be dragged. */
const HEIGHT = 480;
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:";
/** What is in frames of ours, for its programs, is apart already. */
const FRAMED = '<iframe sandbox="allow-scripts"';
const COLOURS = ['--jp-content-font-color1', '--jp-layout-color0', '--jp-rendermime-table-row-background'];
/** Show the heavy outputs of a notebook in frames, while its kernel is a sandbox. */
function frameHeavy(rendermime, isOurs) {
    const factory = rendermime.getFactory(TYPE);
    if (factory === undefined) {
        return;
    }
    const createRenderer = (options) => {
        const widget = factory.createRenderer(options);
        const render = widget.renderModel.bind(widget);
        let last = 0;
        widget.renderModel = async (model) => {
            last += 1;
            const number = last;
            const data = model.data[TYPE];
            const source = Array.isArray(data) ? data.join('') : data;
            if (typeof source !== 'string' ||
                source.startsWith(FRAMED) ||
                !isHeavy(source) ||
                !(await isOurs()) ||
                isProgram(source)) {
                return number === last ? render(model) : undefined; // another one came meanwhile
            }
            if (number === last) {
                widget.node.replaceChildren(frameOf(source));
            }
        };
        return widget;
    };
    rendermime.addFactory({ ...factory, mimeTypes: [TYPE], createRenderer }, rendermime.getRank(TYPE));
}
/** Whether a frame without scripts would not show it. The policy lets no script pass but in frames of ours. */
function isProgram(source) {
    // Only what a parser takes for a script is one: "<script" may stand in the value of an attribute.
    return /<script/i.test(source) && new DOMParser().parseFromString(source, 'text/html').scripts.length > 0;
}
function isHeavy(source) {
    if (source.length < FEW) {
        return false;
    }
    const text = source.replace(PICTURES, '');
    let weight = text.length / LETTERS_OF_ELEMENT;
    for (const [, span] of text.matchAll(/<[a-z]|span\s{0,9}=\s{0,9}["']?(\d{1,9})/gi)) {
        weight += span === undefined ? 1 : Number(span);
        if (weight > MAX_WEIGHT) {
            return true;
        }
    }
    return weight > MAX_WEIGHT;
}
function frameOf(source) {
    const frame = document.createElement('iframe');
    frame.className = 'sk-Heavy';
    frame.setAttribute('sandbox', 'allow-popups allow-popups-to-escape-sandbox');
    frame.referrerPolicy = 'no-referrer';
    frame.style.height = `${HEIGHT}px`;
    frame.title = 'A large output, drawn apart from the page';
    frame.srcdoc =
        `<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${POLICY}">` +
            `<meta http-equiv="x-dns-prefetch-control" content="off"><base target="_blank"><style>${style()}</style>${source}`;
    return frame;
}
/** What JupyterLab's own sheet says of outputs, as much as a table needs. */
function style() {
    const page = getComputedStyle(document.body);
    const [color, background, stripe] = COLOURS.map(name => page.getPropertyValue(name).replace(/[<>{};]/g, ''));
    return (`html{color:${color};background:${background};font:13px system-ui,sans-serif}body{margin:4px}` +
        'table{border-collapse:collapse;border:none;font-size:12px}td,th{text-align:right;vertical-align:middle;' +
        `padding:.5em;line-height:normal}thead{border-bottom:1px solid}tbody tr:nth-child(odd){background:${stripe}}`);
}

// EXTERNAL MODULE: consume shared module (default) @lumino/widgets@^2.3.0 (singleton)
var widgets_2_3_singleton_ = __webpack_require__("webpack/sharing/consume/default/@lumino/widgets");
;// ./lib/acts.js
/** What a person can do with a whole sandbox: restart its kernel, end it. Each asks first. */

async function confirmed(title, body, label) {
    const buttons = [apputils_4_3_singleton_.Dialog.cancelButton(), apputils_4_3_singleton_.Dialog.warnButton({ label })];
    return (await (0,apputils_4_3_singleton_.showDialog)({ title, body, buttons })).button.accept;
}
async function restart(session, dialogs) {
    await dialogs.restart(session);
}
async function end(session) {
    const body = 'Its kernel is shut down. Variables and the files in the sandbox are removed.';
    if (await confirmed('End the sandbox?', body, 'End')) {
        await session.shutdown();
    }
}

;// ./lib/dom.js
/** Elements, made of tags and texts: nothing that a kernel says is ever read as HTML. */
function dom_element(tag, className = '', text = '') {
    const made = document.createElement(tag);
    if (className !== '') {
        made.className = className;
    }
    made.textContent = text;
    return made;
}
function dom_button(label, title, act) {
    const made = dom_element('button', 'sk-Button', label);
    made.type = 'button';
    made.title = title;
    made.addEventListener('click', act);
    return made;
}

;// ./lib/transfers.js
/** Files on their way: each a row with a name, a bar and a way to give it up. Two are moved at a time. */




const AT_ONCE = 2;
const LONGEST_WHY = 300;
class Transfers {
    node = dom_element('div', 'sk-Transfers');
    running = 0;
    waiting = [];
    constructor() {
        this.node.setAttribute('aria-live', 'polite');
    }
    /** Show one transfer until it ends; a row that says why it failed stays until it is closed. True if it was done. */
    async run(name, work) {
        const row = dom_element('div', 'sk-Transfer');
        const label = dom_element('bdi', 'sk-Transfer-name', parse_text(name, 300));
        const bar = dom_element('progress');
        const said = dom_element('span', 'sk-Transfer-said', 'waiting');
        const giveUp = new AbortController();
        const stop = dom_button('×', 'Give it up', () => giveUp.abort());
        bar.setAttribute('aria-label', label.textContent ?? '');
        row.append(label, stop, bar, said);
        this.node.append(row);
        await this.turn();
        try {
            await work((done, total) => {
                bar.max = Math.max(1, total);
                bar.value = total === 0 ? 1 : done;
                said.textContent = `${bytes(done)} of ${bytes(total)}`;
            }, giveUp.signal);
            row.remove();
            return true;
        }
        catch (error) {
            bar.remove();
            row.classList.add('sk-mod-failed');
            said.textContent = error instanceof Refused ? parse_text(error.message, LONGEST_WHY) : 'it could not be read or written';
            stop.title = 'Close';
            stop.onclick = () => row.remove();
            if (!(error instanceof Refused)) {
                console.error('sandbox-kernel:', error);
            }
            return false;
        }
        finally {
            this.running -= 1;
            this.waiting.shift()?.();
        }
    }
    async turn() {
        while (this.running >= AT_ONCE) {
            await new Promise(resolve => this.waiting.push(resolve));
        }
        this.running += 1;
    }
}

;// ./lib/panel.js
/** The panel "Sandbox files": what is in the sandbox of the notebook, files in, files out. */







const SHOWN = 1000;
/** Between two lists that cells bring about. */
const panel_GAP_MS = 1000;
const DRAGGED = 'application/x-jupyter-icontents';
class FilesPanel extends widgets_2_3_singleton_.Widget {
    current;
    bring;
    status = dom_element('div', 'sk-Status');
    note = dom_element('div', 'sk-Note');
    list = dom_element('ul', 'sk-List');
    behaviour = dom_element('details', 'sk-Behaviour');
    tools = dom_element('div', 'sk-Tools');
    transfers = new Transfers();
    chooser = dom_element('input');
    shownOf = null;
    shownBehaviour = '';
    names = new Set();
    listing = false;
    again = false;
    /** A sandbox is awaited, whose files are to be listed. */
    pending = false;
    timer;
    constructor(current, bring, dialogs) {
        super();
        this.current = current;
        this.bring = bring;
        this.addClass('sk-Panel');
        this.title.label = 'Sandbox files';
        this.chooser.type = 'file';
        this.chooser.multiple = true;
        this.chooser.hidden = true;
        this.chooser.addEventListener('change', () => {
            void this.upload([...(this.chooser.files ?? [])]);
            this.chooser.value = '';
        });
        this.tools.append(dom_button('Upload', 'Put files of yours into the sandbox', () => this.chooser.click()), dom_button('Refresh', 'List the files anew', () => void this.refresh()), dom_button('Restart', 'Restart the kernel: variables go, files stay', () => {
            if (current.session !== null) {
                void restart(current.session, dialogs);
            }
        }), dom_button('End', 'End the sandbox: variables and files go', () => {
            if (current.session !== null) {
                void end(current.session);
            }
        }));
        this.list.setAttribute('aria-label', 'Files in the sandbox');
        this.note.setAttribute('role', 'status');
        this.node.append(this.status, this.tools, this.chooser, this.transfers.node, this.note, this.behaviour, this.list);
        current.changed.connect(this.onChanged, this);
        current.worked.connect(this.refreshSoon, this);
        this.onChanged();
    }
    /** Write files into the sandbox; one that takes the place of another only when that is wanted. */
    async upload(files) {
        for (const file of files) {
            await this.put(file, file.name);
        }
    }
    /** Write what lies in the server's folders into the sandbox. */
    async bringIn(paths) {
        for (const path of paths) {
            await this.put(path, this.bring.target(path));
        }
    }
    handleEvent(event) {
        switch (event.type) {
            case 'dragenter':
            case 'dragover':
                this.over(event, [...(event.dataTransfer?.types ?? [])].includes('Files'));
                break;
            case 'lm-dragenter':
            case 'lm-dragover': {
                const drag = event;
                this.over(drag, drag.mimeData.hasData(DRAGGED));
                drag.dropAction = 'copy';
                break;
            }
            case 'dragleave':
            case 'lm-dragleave':
                this.removeClass('sk-mod-over');
                break;
            case 'drop':
                this.over(event, true);
                this.removeClass('sk-mod-over');
                void this.upload(dropped(event.dataTransfer, folder => this.say(folder)));
                break;
            case 'lm-drop': {
                const drag = event;
                this.over(drag, true);
                this.removeClass('sk-mod-over');
                const paths = drag.mimeData.getData(DRAGGED);
                void this.bringIn(Array.isArray(paths) ? paths.filter(one => typeof one === 'string') : []);
                break;
            }
        }
    }
    onAfterAttach(message) {
        super.onAfterAttach(message);
        for (const kind of EVENTS) {
            this.node.addEventListener(kind, this);
        }
    }
    onBeforeDetach(message) {
        for (const kind of EVENTS) {
            this.node.removeEventListener(kind, this);
        }
        super.onBeforeDetach(message);
    }
    onAfterShow(message) {
        super.onAfterShow(message);
        void this.current.look();
        this.refreshSoon();
    }
    async put(source, name) {
        const sandbox = this.current.sandbox;
        if (sandbox === null) {
            this.say('The notebook in front has no sandbox.');
            return;
        }
        const shown = parse_text(name, 200);
        if (this.names.has(name) && !(await confirmed('Replace the file?', `"${shown}" is in the sandbox already.`, 'Replace'))) {
            return;
        }
        const done = await this.transfers.run(name, async (progress, signal) => {
            const blob = typeof source === 'string' ? await this.bring.fetch(source, signal) : source;
            await sandbox.upload(blob, name, progress, signal);
        });
        if (done) {
            this.refreshSoon();
        }
    }
    over(event, taken) {
        if (taken && this.current.sandbox !== null) {
            event.preventDefault();
            event.stopPropagation();
            this.addClass('sk-mod-over');
        }
    }
    say(what) {
        this.note.textContent = what;
    }
    onChanged() {
        const { sandbox, state } = this.current;
        this.tools.hidden = sandbox === null;
        // How the sandbox stands is in the status line.
        this.status.textContent = sandbox === null ? 'The notebook in front has no sandbox.' : (state?.problem ?? '');
        this.status.hidden = this.status.textContent === '';
        this.showBehaviour(state?.behaviour ?? null);
        if (sandbox?.kernel !== this.shownOf?.kernel) {
            this.shownOf = sandbox;
            this.fill([], true);
            this.say('');
            this.refreshSoon();
        }
        else if (sandbox !== null && state?.state === 'none' && this.names.size > 0) {
            this.fill([], true);
        }
        else if (this.pending && state !== null && state.state !== 'starting') {
            this.refreshSoon();
        }
    }
    refreshSoon() {
        if (this.timer === undefined) {
            this.timer = window.setTimeout(() => {
                this.timer = undefined;
                void this.refreshIfThere();
            }, panel_GAP_MS);
        }
    }
    /** List without starting a sandbox for it. */
    async refreshIfThere() {
        const { sandbox, state } = this.current;
        const there = state?.state === 'idle' || state?.state === 'busy';
        this.pending = sandbox !== null && !there;
        if (there && this.isVisible) {
            await this.refresh();
        }
    }
    async refresh() {
        const sandbox = this.current.sandbox;
        this.again = this.listing;
        if (sandbox === null || this.listing) {
            return;
        }
        this.listing = true;
        try {
            const { files, complete } = await sandbox.list();
            if (this.current.sandbox?.kernel === sandbox.kernel) {
                this.fill(files, complete);
            }
        }
        catch (error) {
            this.say(error instanceof Refused ? error.message : 'The files could not be listed.');
        }
        finally {
            this.listing = false;
        }
        if (this.again) {
            this.refreshSoon();
        }
    }
    /** What cells did that matters; nothing is shown where there is nothing to say. */
    showBehaviour(said) {
        this.behaviour.hidden = said === null || said.rows.length === 0;
        const shown = JSON.stringify(said);
        if (said === null || shown === this.shownBehaviour) {
            return; // drawn anew, it would lose what a person has marked in it
        }
        this.shownBehaviour = shown;
        const head = dom_element('summary', said.safe ? '' : 'sk-mod-failed', behaviourLine(said));
        const list = dom_element('ul', 'sk-List');
        for (const row of said.rows) {
            const where = row.cell === null ? '' : `, first in [${row.cell}]`;
            const item = dom_element('li', '', row.reason);
            item.title = `${row.code}: ${row.score} points, ${row.times} times${where}`;
            list.append(item);
        }
        this.behaviour.replaceChildren(head, list);
    }
    fill(files, complete) {
        this.names = new Set(files.map(file => file.path));
        this.list.replaceChildren(...files.slice(0, SHOWN).map(file => this.row(file)));
        const total = complete ? `${files.length}` : `${Math.min(files.length, (/* inlined export .MAX_FILES */5000))} or more`;
        if (files.length > SHOWN || !complete) {
            this.say(`${Math.min(SHOWN, files.length)} of ${total} files are shown.`);
        }
        else {
            this.say(files.length === 0 && this.current.sandbox !== null ? 'No files yet. Drop some here.' : '');
        }
    }
    row(file) {
        const row = dom_element('li', 'sk-File');
        const shown = parse_text(file.path, 1024);
        const name = dom_element('bdi', 'sk-File-name', shown);
        const when = file.modified === null ? '' : new Date(file.modified * 1000).toLocaleString();
        row.title = [shown, bytes(file.size), when].filter(part => part !== '').join('\n');
        row.append(name, dom_element('span', 'sk-File-size', bytes(file.size)), dom_button('↓', `Download ${shown}`, () => void this.download(file)), dom_button('×', `Delete ${shown}`, () => void this.remove(file)));
        return row;
    }
    async download(file) {
        const sandbox = this.current.sandbox;
        if (sandbox === null) {
            return;
        }
        await this.transfers.run(file.path, async (progress, signal) => {
            const blob = await sandbox.download(file.path, progress, signal);
            const link = dom_element('a');
            link.href = URL.createObjectURL(blob);
            link.download = downloadName(file.path);
            link.click();
            window.setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
        });
    }
    async remove(file) {
        const sandbox = this.current.sandbox;
        const body = `"${parse_text(file.path, 200)}" is removed from the sandbox.`;
        if (sandbox === null || !(await confirmed('Delete the file?', body, 'Delete'))) {
            return;
        }
        try {
            await sandbox.remove(file.path);
        }
        catch (error) {
            this.say(error instanceof Refused ? error.message : 'The file could not be deleted.');
            return;
        }
        await this.refresh();
    }
}
const EVENTS = ['dragenter', 'dragover', 'dragleave', 'drop', 'lm-dragenter', 'lm-dragover', 'lm-dragleave', 'lm-drop'];
function dropped(data, refuse) {
    const files = [];
    for (const item of data?.items ?? []) {
        const file = item.getAsFile();
        if (item.webkitGetAsEntry()?.isDirectory) {
            refuse('A folder is not taken as a whole: drop its files.');
        }
        else if (file !== null) {
            files.push(file);
        }
    }
    return files;
}

// EXTERNAL MODULE: consume shared module (default) @codemirror/state@^6.4.0 (singleton)
var state_6_4_singleton_ = __webpack_require__("webpack/sharing/consume/default/@codemirror/state");
// EXTERNAL MODULE: consume shared module (default) @codemirror/view@^6.26.0 (singleton)
var view_6_26_singleton_ = __webpack_require__("webpack/sharing/consume/default/@codemirror/view");
;// ./lib/pastes.js
/**
 * Asks before a larger paste goes in that the screen of the sandbox finds something in. Triage, and no wall.
 *
 * The paste is held while the kernel's process reads it, and while a person decides. Only the kernels of a sandbox whose
 * setting `screen` is on read any.
 */






/** Characters from which on a paste is read, as in the extension of VS Code. */
const READ_FROM = 40;
/** `sandboxOf` says whose editor an element is of; null for one that is of no sandbox. */
function askBeforePastes(registry, sandboxOf) {
    registry.addExtension({
        name: 'sandbox-kernel:pastes',
        factory: () => codemirror_4_2_singleton_.EditorExtensionRegistry.createImmutableExtension(holding(sandboxOf))
    });
}
const answered = state_6_4_singleton_.Annotation.define();
function holding(sandboxOf) {
    let view;
    const here = view_6_26_singleton_.ViewPlugin.define(one => {
        view = one;
        return {};
    });
    const filter = state_6_4_singleton_.EditorState.transactionFilter.of(transaction => {
        if (view === undefined || !transaction.isUserEvent('input.paste') || transaction.annotation(answered)) {
            return transaction;
        }
        const text = inserted(transaction);
        const sandbox = text.length < READ_FROM ? null : sandboxOf(view.dom);
        if (!sandbox?.about.screens) {
            return transaction;
        }
        void decide(view, transaction, text, sandbox);
        return [];
    });
    return [here, filter];
}
async function decide(view, held, text, sandbox) {
    const found = await sandbox.reasons(text).catch(() => []); // what is late holds up no paste
    if (found.length === 0 || (await wanted(found))) {
        // As it was, or at the cursor if the text is another one by now.
        const same = view.state.doc.eq(held.startState.doc);
        const spec = same ? { changes: held.changes, selection: held.selection } : view.state.replaceSelection(text);
        view.dispatch({ ...spec, annotations: answered.of(true), userEvent: 'input.paste', scrollIntoView: true });
    }
    view.focus();
}
async function wanted(found) {
    const body = new widgets_2_3_singleton_.Widget();
    const list = dom_element('ul', 'sk-Reasons');
    list.append(...found.map(one => dom_element('li', '', one)));
    body.node.append(list);
    const buttons = [apputils_4_3_singleton_.Dialog.cancelButton(), apputils_4_3_singleton_.Dialog.warnButton({ label: 'Paste' })];
    return (await (0,apputils_4_3_singleton_.showDialog)({ title: 'Paste this? The screen finds:', body, buttons, defaultButton: 0 })).button.accept;
}
function inserted(transaction) {
    const parts = [];
    transaction.changes.iterChanges((_from, _to, _begin, _end, text) => parts.push(text.toString()));
    return parts.join('\n');
}

;// ./lib/status.js
/** One line about the sandbox, and all about it at a click. */





class StatusLine extends widgets_2_3_singleton_.Widget {
    current;
    dialogs;
    showFiles;
    button = dom_element('button', 'sk-StatusLine-button');
    constructor(current, dialogs, showFiles) {
        super();
        this.current = current;
        this.dialogs = dialogs;
        this.showFiles = showFiles;
        this.addClass('sk-StatusLine');
        this.button.type = 'button';
        this.button.title = 'The sandbox of the notebook in front';
        this.button.addEventListener('click', () => void this.tell());
        this.node.append(this.button);
        current.changed.connect(this.onChanged, this);
        this.onChanged();
    }
    onChanged() {
        const { sandbox, state } = this.current;
        this.setHidden(sandbox === null);
        this.button.textContent = sandbox === null ? '' : line(sandbox.about, state);
    }
    async tell() {
        const { sandbox, state, session } = this.current;
        if (sandbox === null || session === null) {
            return;
        }
        const body = new widgets_2_3_singleton_.Widget();
        const table = dom_element('table', 'sk-About');
        for (const [name, value] of rows(sandbox.about, state)) {
            const row = dom_element('tr');
            const head = dom_element('th', '', name);
            head.scope = 'row';
            row.append(head, dom_element('td', '', value));
            table.append(row);
        }
        body.node.append(table);
        const buttons = [
            apputils_4_3_singleton_.Dialog.createButton({ label: 'Files' }),
            apputils_4_3_singleton_.Dialog.createButton({ label: 'Restart kernel…' }),
            apputils_4_3_singleton_.Dialog.warnButton({ label: 'End sandbox…', accept: false }),
            apputils_4_3_singleton_.Dialog.okButton({ label: 'Close' })
        ];
        const { button } = await (0,apputils_4_3_singleton_.showDialog)({ title: 'Sandbox', body, buttons, defaultButton: 3 });
        if (button.label === 'Files') {
            this.showFiles();
        }
        else if (button.label === 'Restart kernel…') {
            await restart(session, this.dialogs);
        }
        else if (button.label === 'End sandbox…') {
            await end(session);
        }
    }
}

;// ./lib/index.js
/** The extension: the sandbox's files in a panel, a line about it, an entry in a menu, and frames that fit. */
















const SHOW = 'sandbox-kernel:show-files';
const BRING_IN = 'sandbox-kernel:bring-in';
const icon = new ui_components_4_2_singleton_.LabIcon({
    name: 'sandbox-kernel:box',
    svgstr: '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" ' +
        'd="M12 2 3 6.5v11L12 22l9-4.5v-11zm0 2.2 5.9 3L12 10.1 6.1 7.2zM5 8.9l6 3v7.3l-6-3zm8 10.3v-7.3l6-3v7.3z"/></svg>'
});
const lib_plugin = {
    id: 'sandbox-kernel:plugin',
    description: 'Files and state of the sandbox behind a notebook.',
    autoStart: true,
    optional: [notebook_4_2_singleton_.INotebookTracker, console_4_2_singleton_.IConsoleTracker, apputils_4_3_singleton_.ISessionContextDialogs, filebrowser_4_2_singleton_.IFileBrowserFactory, statusbar_4_2_singleton_.IStatusBar, application_4_2_singleton_.ILabShell, codemirror_4_2_singleton_.IEditorExtensionRegistry],
    activate: (app, notebooks, consoles, given, browsers, statusBar, lab, editors) => {
        if (notebooks === null && consoles === null) {
            return; // a page without kernels, such as Notebook's list of files
        }
        const dialogs = given ?? new apputils_4_3_singleton_.SessionContextDialogs();
        const { contents, kernelspecs, serverSettings } = app.serviceManager;
        const current = new Current(kernelspecs);
        notebooks?.currentChanged.connect((_, one) => current.use(one?.sessionContext ?? null));
        consoles?.currentChanged.connect((_, one) => current.use(one?.sessionContext ?? null));
        lab?.currentChanged.connect((_, { newValue }) => {
            // From a console back to the notebook that was the current one before: its tracker says nothing.
            const known = [notebooks?.currentWidget, consoles?.currentWidget].find(one => one && one === newValue);
            if (known) {
                current.use(known.sessionContext);
            }
        });
        current.use((notebooks?.currentWidget ?? consoles?.currentWidget)?.sessionContext ?? null);
        const panel = new FilesPanel(current, new Bring(contents, serverSettings, current), dialogs);
        panel.id = 'sandbox-kernel-files';
        panel.title.caption = 'Sandbox files';
        if (lab !== null) {
            panel.title.label = '';
            panel.title.icon = icon;
        }
        app.shell.add(panel, 'right', { rank: 700, type: 'Sandbox files' });
        app.commands.addCommand(SHOW, {
            label: 'Show Sandbox Files',
            icon,
            execute: () => {
                const shell = app.shell;
                if (lab === null) {
                    shell.expandRight?.(panel.id); // Notebook 7 shows one of its side panels so
                }
                app.shell.activateById(panel.id);
            }
        });
        const status = new StatusLine(current, dialogs, () => void app.commands.execute(SHOW));
        if (statusBar !== null) {
            statusBar.registerStatusItem('sandbox-kernel:status', {
                item: status,
                align: 'left',
                rank: 20,
                isActive: () => current.sandbox !== null,
                activeStateChanged: current.changed
            });
        }
        else {
            status.id = 'sandbox-kernel-status';
            app.shell.add(status, 'menu', { rank: 900 });
        }
        if (editors !== null) {
            askBeforePastes(editors, editor => {
                const front = [notebooks?.currentWidget, consoles?.currentWidget].find(one => one?.node.contains(editor));
                return front?.sessionContext === current.session ? current.sandbox : null;
            });
        }
        if (browsers !== null) {
            const selected = () => [...(browsers.tracker.currentWidget?.selectedItems() ?? [])].filter(one => one.type !== 'directory');
            app.commands.addCommand(BRING_IN, {
                label: 'Bring into the Sandbox',
                icon,
                isVisible: () => current.sandbox !== null && selected().length > 0,
                execute: async () => {
                    await app.commands.execute(SHOW);
                    await panel.bringIn(selected().map(one => one.path));
                }
            });
            app.contextMenu.addItem({ command: BRING_IN, selector: '.jp-DirListing-item[data-isdir="false"]', rank: 5 });
        }
    }
};
const lib_frames = {
    id: 'sandbox-kernel:frames',
    description: 'Frames of outputs as high as what they show, in the colours of the theme, with their libraries; large outputs in frames.',
    autoStart: true,
    optional: [apputils_4_3_singleton_.IThemeManager, notebook_4_2_singleton_.INotebookTracker],
    activate: (app, themes, notebooks) => {
        serveFrames(themes, notebooks);
        notebooks?.widgetAdded.connect((_, { content, sessionContext }) => {
            const specs = app.serviceManager.kernelspecs;
            frameHeavy(content.rendermime, async () => {
                await specs.ready;
                // What a notebook brings along is drawn before it has a kernel.
                const said = parse_text(record(content.model?.getMetadata('kernelspec'))['name'], 200);
                return isOurs(specs.specs?.kernelspecs[sessionContext.session?.kernel?.name ?? said]);
            });
        });
    }
};
/* harmony default export */ const lib = ([lib_plugin, lib_frames]);


/***/ }

}]);