/** Files of the server's folders, for the sandbox. */

import { PathExt } from '@jupyterlab/coreutils';
import { type Contents, ServerConnection } from '@jupyterlab/services';

import type { Current } from './current';
import { Refused } from './sandbox';

export class Bring {
  constructor(
    private readonly contents: Contents.IManager,
    private readonly settings: ServerConnection.ISettings,
    private readonly current: Current
  ) {}

  /** What a file is called in the sandbox: its path from the notebook's folder if it lies below, else its name. */
  target(path: string): string {
    const local = this.contents.localPath(path);
    const folder = PathExt.dirname(this.contents.localPath(this.current.session?.path ?? ''));
    const start = folder === '' ? '' : `${folder}/`;
    return local.startsWith(start) ? local.slice(start.length) : PathExt.basename(local);
  }

  async fetch(path: string, signal: AbortSignal): Promise<Blob> {
    const url = await this.contents.getDownloadUrl(path);
    const answer = await ServerConnection.makeRequest(url, { method: 'GET', cache: 'no-store', signal }, this.settings);
    if (!answer.ok) {
      throw new Refused(`the server does not give it (${answer.status})`);
    }
    return answer.blob();
  }
}
