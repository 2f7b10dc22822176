// What this browser keeps; a browser that keeps nothing, as in private windows, loses it with the page.

const instead = new Map();

/** What was kept under a key, null for nothing. */
export function kept(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return instead.get(key) ?? null;
  }
}

/** Keeps a value under a key; false if there is no room. */
export function keep(key, value) {
  instead.set(key, value);
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** Forgets what was kept under a key. */
export function drop(key) {
  instead.delete(key);
  try {
    localStorage.removeItem(key);
  } catch {
    // nothing was kept
  }
}

/** The keys that begin so. */
export function keysWith(beginning) {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(beginning));
  } catch {
    return [...instead.keys()].filter((key) => key.startsWith(beginning));
  }
}
