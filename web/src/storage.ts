// What the browser keeps for this page. Where site data is blocked even looking at it throws: then
// what is kept ends with the page.

export type Store = Pick<Storage, 'length' | 'key' | 'getItem' | 'setItem' | 'removeItem'>;

class MemoryStore implements Store {
  private readonly items = new Map<string, string>();
  get length(): number {
    return this.items.size;
  }
  key(index: number): string | null {
    return [...this.items.keys()][index] ?? null;
  }
  getItem(key: string): string | null {
    return this.items.get(key) ?? null;
  }
  setItem(key: string, value: string): void {
    this.items.set(key, value);
  }
  removeItem(key: string): void {
    this.items.delete(key);
  }
}

function open(name: 'localStorage' | 'sessionStorage'): Store {
  try {
    return window[name];
  } catch {
    return new MemoryStore();
  }
}

export const browserStore = open('localStorage');
export const tabStore = open('sessionStorage');
export const isBlocked = browserStore instanceof MemoryStore;
