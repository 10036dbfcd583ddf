// The panel at the right with its three tabs; on a phone it covers the page.
import {byId} from './dom.js';

const TABS = ['settings', 'model', 'load'] as const;
export type Tab = typeof TABS[number];

export class Panel {
  private readonly element = byId('panel');
  private readonly opener = byId<HTMLButtonElement>('panel-open');
  private tab: Tab = 'settings';

  // `shown` hears which tab is seen now, or none.
  constructor(private readonly shown: (tab: Tab | undefined) => void) {
    this.opener.addEventListener('click', () => this.element.hidden ? this.open(this.tab) : this.close());
    byId('panel-close').addEventListener('click', () => this.close());
    this.element.addEventListener('keydown', event => {
      if (event.key !== 'Escape' || event.isComposing) return;
      event.stopPropagation();
      this.close();
    });
    TABS.forEach((tab, index) => {
      const button = byId(`tab-${tab}`);
      button.addEventListener('click', () => this.open(tab));
      button.addEventListener('keydown', event => {
        const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
        if (step === 0) return;
        event.preventDefault();
        const next = TABS[(index + step + TABS.length) % TABS.length] ?? 'settings';
        this.open(next);
        byId(`tab-${next}`).focus();
      });
    });
  }

  open(tab: Tab): void {
    const wasHidden = this.element.hidden;
    this.tab = tab;
    this.element.hidden = false;
    this.opener.setAttribute('aria-expanded', 'true');
    for (const each of TABS) {
      const button = byId(`tab-${each}`);
      button.setAttribute('aria-selected', String(each === tab));
      button.tabIndex = each === tab ? 0 : -1;
      byId(`view-${each}`).hidden = each !== tab;
    }
    if (wasHidden) byId(`tab-${tab}`).focus();
    this.shown(tab);
  }

  private close(): void {
    const hadFocus = this.element.contains(document.activeElement);
    this.element.hidden = true;
    this.opener.setAttribute('aria-expanded', 'false');
    if (hadFocus) this.opener.focus();
    this.shown(undefined);
  }
}
