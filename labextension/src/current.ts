/**
 * Which sandbox is meant: that of the notebook or console that was used last, and how it stands.
 *
 * A kernel is ours if the server starts it with our module, and it says so itself: the first a kernel cannot forge, so
 * one of another kind is asked nothing and given nothing.
 */

import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, KernelMessage, KernelSpec } from '@jupyterlab/services';
import { type ISignal, Signal } from '@lumino/signaling';

import { Sandbox } from './sandbox';
import { type State, about } from './parse';

const EVERY_MS = 5000;
const INFO_MS = 120_000;
/** Between two looks that a kernel's messages bring about. */
const GAP_MS = 1500;

export function isOurs(spec: KernelSpec.ISpecModel | null | undefined): boolean {
  const argv: unknown = spec?.argv;
  return Array.isArray(argv) && argv.some((word, place) => word === '-m' && argv[place + 1] === 'sandbox_kernel');
}

export class Current {
  private context: ISessionContext | null = null;
  private kernel: Kernel.IKernelConnection | null = null;
  private found: Sandbox | null = null;
  private stands: State | null = null;
  private looking: Kernel.IKernelConnection | null = null;
  private lastLook = 0;
  private soon: number | undefined;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _worked = new Signal<this, void>(this);

  constructor(private readonly specs: KernelSpec.IManager) {
    window.setInterval(() => {
      if (document.visibilityState === 'visible') {
        void this.look();
      }
    }, EVERY_MS);
  }

  /** Another sandbox is meant, or how it stands is known anew. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** A cell has ended, so files may be others. */
  get worked(): ISignal<this, void> {
    return this._worked;
  }

  get session(): ISessionContext | null {
    return this.context;
  }

  /** The sandbox; null if there is no kernel, or it is not ours. */
  get sandbox(): Sandbox | null {
    return this.found;
  }

  /** How the sandbox stands; null if it is not known. */
  get state(): State | null {
    return this.stands;
  }

  /** From now on, what runs behind this notebook or console is meant. */
  use(context: ISessionContext | null): void {
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
  async look(): Promise<void> {
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
    } finally {
      if (this.looking === kernel) {
        this.looking = null;
      }
    }
  }

  private async sandboxOf(kernel: Kernel.IKernelConnection): Promise<Sandbox | null> {
    await this.specs.ready;
    if (!isOurs(this.specs.specs?.kernelspecs[kernel.name])) {
      return null;
    }
    const known = about(await within(kernel.info, INFO_MS));
    return known === null ? null : new Sandbox(kernel, known);
  }

  private onKernel(): void {
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

  private onGone(context: ISessionContext): void {
    if (context === this.context) {
      this.use(null);
    }
  }

  private onMessage(_: unknown, { msg, direction }: Kernel.IAnyMessageArgs): void {
    if (direction === 'recv' && (msg as KernelMessage.IMessage).header.msg_type === 'execute_reply') {
      this._worked.emit();
    }
  }

  private lookSoon(): void {
    if (this.soon === undefined) {
      const wait = Math.max(50, this.lastLook + GAP_MS - Date.now());
      this.soon = window.setTimeout(() => {
        this.soon = undefined;
        void this.look();
      }, wait);
    }
  }
}

function within<T>(promise: Promise<T>, milliseconds: number): Promise<T | null> {
  return Promise.race([
    promise.catch(() => null),
    new Promise<null>(resolve => window.setTimeout(() => resolve(null), milliseconds))
  ]);
}
