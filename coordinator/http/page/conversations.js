// The conversations of this browser: turns, system prompt and sampling of each.

import { keep, kept } from "./keeping.js";

const KEY = "layerline.conversations";
const MOST = 50;
const TITLE_LETTERS = 40;

/** All of them, the latest first; there is always one. */
export class Conversations {
  constructor() {
    const found = kept(KEY);
    this.all = Array.isArray(found) ? found.filter((each) => Array.isArray(each?.turns)) : [];
    if (!this.all.length) this.begin();
    this.current = this.all[0];
  }

  /** A new one, unless the current one is new itself. */
  begin() {
    if (this.current && !this.current.turns.length) return;
    const settings = this.current ? { ...this.current.settings } : {};
    this.current = { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), turns: [], settings };
    this.all.unshift(this.current);
    this.all.splice(MOST);
    this.keep();
  }

  /** Goes on with the one of that id. */
  choose(id) {
    this.current = this.all.find((each) => each.id === id) ?? this.current;
  }

  /** Deletes the current one. */
  forget() {
    this.all = this.all.filter((each) => each !== this.current);
    this.current = null;
    if (this.all.length) [this.current] = this.all;
    else this.begin();
    this.keep();
  }

  /** Keeps them; where there is no room the oldest go. */
  keep() {
    while (!keep(KEY, this.all) && this.all.length > 1) this.all.pop();
  }
}

/** What a conversation is called. */
export function titleOf(conversation) {
  const [first] = conversation.turns;
  const text = first ? first.content.trim().split("\n")[0] : "New conversation";
  return text.length > TITLE_LETTERS ? `${text.slice(0, TITLE_LETTERS)} …` : text;
}
