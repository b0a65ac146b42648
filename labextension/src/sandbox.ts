/**
 * The sandbox behind one kernel: how it stands, and its files, over messages on the kernel's control channel.
 *
 * The messages are described in docs/jupyter-server.md. Every answer is bounded in time, and read by parse.ts.
 */

import { type Kernel, KernelMessage } from '@jupyterlab/services';

import {
  type About,
  type Entry,
  type Said,
  type State,
  DOWNLOAD_BYTES,
  count,
  page,
  reasons,
  record,
  state,
  text
} from './parse';
import { bytes } from './words';

const PATIENCE_MS = 90_000;
/** More than a start may take, which a file request may begin. */
const STATE_PATIENCE_MS = 10_000;
/** Whoever pastes does not wait longer. */
const SCREEN_PATIENCE_MS = 2000;
const PAGE = 1000;
export const MAX_FILES = 5000;

/** Why a request was refused or not answered, in words for a person. */
export class Refused extends Error {}

interface Answer {
  readonly content: Said;
  readonly buffers: readonly (ArrayBuffer | ArrayBufferView)[];
}

export type Progress = (done: number, total: number) => void;

export class Sandbox {
  constructor(
    readonly kernel: Kernel.IKernelConnection,
    readonly about: About
  ) {}

  async state(): Promise<State> {
    return state((await this.ask('state', {}, [], STATE_PATIENCE_MS)).content);
  }

  /** What speaks against code that is in no cell yet. */
  async reasons(code: string): Promise<string[]> {
    return reasons((await this.ask('screen', { code }, [], SCREEN_PATIENCE_MS)).content);
  }

  /** The files of scratch, `MAX_FILES` at most; `complete` says whether these are all. */
  async list(): Promise<{ files: Entry[]; complete: boolean }> {
    const files: Entry[] = [];
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
  async upload(source: Blob, path: string, progress: Progress, signal: AbortSignal): Promise<void> {
    if (source.size > this.about.fileBytes) {
      const most = bytes(this.about.fileBytes);
      throw new Refused(
        `it has ${bytes(source.size)}, and one file may have ${most}. Split it, or install the kernel with a larger ` +
          `limit: sandbox-kernel install --scratch-size SIZE (settings scratch_size and file_limit)`
      );
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
      token = text(content['upload'], 100);
      if (token === '' || chunk.byteLength === 0) {
        throw new Refused('the kernel does not go on with it');
      }
    }
  }

  /** Read a file, as bytes that no browser takes for a page. */
  async download(path: string, progress: Progress, signal: AbortSignal): Promise<Blob> {
    const parts: BlobPart[] = [];
    let offset = 0;
    let etag = '';
    let total: number | null = null;
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
        throw new Refused(
          `it has ${bytes(size)}, and a page holds up to ${bytes(DOWNLOAD_BYTES)}. Have it copied to a folder: ` +
            'sandbox-kernel install --downloads FOLDER (setting downloads)'
        );
      }
      total = size;
      parts.push(part);
      offset += part.byteLength;
      progress(offset, total);
      if (offset === total) {
        return new Blob(parts, { type: 'application/octet-stream' });
      }
      etag = text(content['etag'], 200);
      if (part.byteLength === 0 || etag === '') {
        throw new Refused('the kernel does not go on with it');
      }
    }
  }

  async remove(path: string): Promise<void> {
    await this.ask('file_remove', { path });
  }

  /** Send one request and return its reply. Raises `Refused`. */
  private async ask(
    what: string,
    fields: Said,
    buffers: ArrayBuffer[] = [],
    patience: number = PATIENCE_MS
  ): Promise<Answer> {
    const kernel = this.kernel;
    if (kernel.isDisposed || kernel.status === 'dead' || kernel.connectionStatus !== 'connected') {
      throw new Refused('the kernel is not connected');
    }
    // The types of messages that JupyterLab knows of are a closed list; ours are none of them.
    const message = KernelMessage.createMessage({
      msgType: `sandbox_${what}_request` as 'debug_request',
      channel: 'control',
      session: kernel.clientId,
      username: kernel.username,
      content: { version: 1, ...fields } as never,
      buffers
    } as KernelMessage.IOptions<KernelMessage.IDebugRequestMsg>);
    const future = kernel.sendControlMessage(message, true, false);
    future.done.catch(() => undefined);
    let timer: number | undefined;
    let ended: (() => void) | undefined;
    try {
      const reply = await new Promise<KernelMessage.IMessage>((resolve, reject) => {
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
        throw new Refused(text(content['evalue'], 500) || 'the kernel refused it');
      }
      return { content, buffers: reply.buffers ?? [] };
    } finally {
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
function copied(buffer: ArrayBuffer | ArrayBufferView | undefined): ArrayBuffer | null {
  if (buffer instanceof ArrayBuffer) {
    return buffer.slice(0);
  }
  if (ArrayBuffer.isView(buffer)) {
    return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength).slice().buffer;
  }
  return null;
}
