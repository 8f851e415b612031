/** A fraction in lowest terms. */
export type Fraction = readonly [numerator: bigint, denominator: bigint];
/** `size` random bytes. Only tests pass another one than `systemRandom`. */
export type Random = (size: number) => Uint8Array;
/** What a device may be told: text, a number, a boolean (of a bit), a list or an object by names (of a vector), or nothing. */
export type Value = string | number | boolean | null | undefined | readonly (string | number | null)[] | { readonly [name: string]: string | number | null };

/** An error with one word for programs. */
export declare class HushError extends Error {
  constructor(status: Status, message: string);
  readonly status: Status;
}
export type Status =
  | "argument" | "random" | "malformed" | "task" | "mechanism" | "epsilon" | "not_open" | "closed" | "spent" | "changed" | "sticky" | "full"
  | "storage" | "network" | "forbidden" | "no_task" | "answered";

export interface Bounds { readonly lower: number; readonly upper: number; readonly unit: string }
export type Domain =
  | ({ readonly kind: "number" } & Bounds)
  | { readonly kind: "bit" }
  | { readonly kind: "category"; readonly labels: readonly string[]; readonly other: string | null }
  | { readonly kind: "vector"; readonly coordinates: readonly ({ readonly name: string } & Bounds)[] };

/** A task, as it was published. */
export interface Task {
  readonly id: string;
  readonly title: string;
  readonly purpose: string;
  readonly mechanism: string;
  readonly domain: Domain;
  /** Exact decimal text: the loss of a device that answers every round. */
  readonly epsilon: string;
  /** The epsilons that a device may choose among, ascending; one if the task offers no choice. */
  readonly offers: readonly string[];
  readonly hasOffers: boolean;
  readonly rounds: number;
  /** Seconds from one round to the next. */
  readonly roundEvery: number | undefined;
  /** Milliseconds since 1970. */
  readonly opens: number | undefined;
  readonly closes: number | undefined;
  /** Whether it is answered from a memory that is drawn once. */
  readonly sticky: boolean;
  /** How many draws share epsilon. */
  readonly draws: number;
  /** SHA-256 of the published bytes. */
  readonly digest: Uint8Array;
}

/** Exact decimal texts. */
export interface Limits { maxEpsilon?: string | null; lifetime?: string | null; total?: string | null }
export interface Report {
  readonly task: string;
  readonly digest: Uint8Array;
  readonly round: number;
  readonly id: Uint8Array;
  readonly body: readonly bigint[];
}
export interface Memory { readonly reports: readonly bigint[]; readonly threshold: bigint; readonly substitute: bigint }
export interface Drawn extends Report {
  /** What became of the value. It reveals something about it: never show, store or send it. */
  readonly value: "used" | "moved" | "replaced";
  /** SECRET: of a sticky task, what all its rounds are answered with. */
  readonly memory: Memory | null;
}
export interface Recall { readonly task: string; readonly digest: Uint8Array; readonly id: Uint8Array; readonly spread: number }
export type Reported =
  | { number: number; unit: string }
  | { bit: boolean }
  | { labels: string[] }
  | { coordinates: { name: string; number: number; unit: string }[] };

// ---- the core: no network, no clock, no store
export declare function readTask(payload: Uint8Array): Task;
export declare function currentRound(task: Task, now: number): number;
export declare function chooseOffer(task: Task, limits: Limits, history?: { spent?: Fraction; spentInAll?: Fraction; charged?: boolean; asked?: string | null }): { offer: number; cost: Fraction };
export declare function costOf(task: Task, offer: number, charged: boolean): Fraction;
export declare function checkType(task: Task, value: Value): void;
export declare function indicesOf(task: Task, value: Value): { parts: (bigint | null)[]; value: Drawn["value"] };
/** ONE CHARGE. `Device` stores charge and report before it sends; a caller of this must do so, too. */
export declare function draw(task: Task, value: Value, decision: { round: number; offer?: number; memory?: Memory | null; random?: Random }): Drawn;
export declare function reported(task: Task, body: readonly bigint[]): Reported;
export declare function reportedText(task: Task, body: readonly bigint[]): string;
export declare function encodeFrame(reports: readonly Report[]): Uint8Array;
export declare function encodeJson(report: Report): string;
export declare function reportTopic(task: string, sender: string): string;
export declare const KEEP_SECONDS: number;
export declare const RECALL_BYTES: number;
export declare const RECALL_EVERY: number;
export declare function readRecall(payload: Uint8Array): Recall | null;
export declare function recallTopic(task: string): string;
export declare function isRecalled(recall: Recall, task: string, frame: Uint8Array): boolean;
export declare function recallDelay(recall: Recall, random?: Random): number;
export declare function keptUntil(acknowledged: number, closes: number, keep: number, scheduled?: { spread: number } | null): number;
export declare function systemRandom(size: number): Uint8Array;
export declare function bounded(random: Random, left?: number): Random;
export declare function below(n: bigint, random: Random): bigint;
export declare function weightOfLie(epsilon: Fraction): bigint;
export declare function decimalFraction(text: string): Fraction | null;
export declare function decimalText(value: Fraction): string;
export declare function sha256(bytes: Uint8Array): Uint8Array;
export declare function hex(bytes: Uint8Array): string;
export declare function unhex(text: string): Uint8Array;

// ---- MQTT
export interface Socket { send(bytes: Uint8Array): unknown; close(): unknown }
export type OpenSocket = (events: { onData(bytes: Uint8Array): void; onClose(why: string): void }) => Promise<Socket>;
export interface Connection {
  readonly closed: Promise<HushError>;
  publish(topic: string, payload: Uint8Array): Promise<void>;
  subscribe(topic: string): Promise<void>;
  close(why?: string): void;
}
export declare function connect(open: OpenSocket, options: { onMessage(topic: string, payload: Uint8Array, isRetained: boolean): void; name?: string; username?: string; password?: string; keepAlive?: number }): Promise<Connection>;
export declare function webSocketTo(url: string): OpenSocket;

// ---- the device
/**
 * Where a device keeps its state. `update` runs `step` while no other tab or process does, with all records by name, and
 * stores what it returns (null removes): in order, each durably, before it resolves. If `step` throws, nothing is stored.
 */
export interface Storage {
  update(step: (records: Map<string, Uint8Array>) => Iterable<readonly [name: string, bytes: Uint8Array | null]>): Promise<void>;
  close(): Promise<void>;
}
/** Rejects with a HushError "storage" where the browser blocks it. */
export declare function openIndexedDB(name?: string): Promise<Storage>;
export declare function persist(): Promise<boolean>;

/** Of the limits, `maxEpsilon` and `lifetime` are "4" unless they are given, and `total` is null: no such limit. */
export interface DeviceOptions extends Limits {
  /** Of the broker: ws:// or wss://, in node also mqtt:// and mqtts://, perhaps with user and password. */
  url: string;
  storage: Storage;
  /** Its name: letters, digits and . _ @ : - */
  device?: string;
  username?: string;
  password?: string;
  /** Whether to answer tasks whose answers show when the value changes. */
  sticky?: boolean;
  /** Most seconds of the random delay before a report is sent (1). */
  spread?: number;
  /** Seconds for which a report is kept after the broker's acknowledgement, at most a week. */
  keep?: number;
  recallEvery?: number;
  /** Called after each change of `connected`, `trouble`, `waiting` or the tasks. An exception in it ends nothing. */
  onChange?(device: Device): void;
  socketTo?(url: string): OpenSocket;
  random?: Random;
  clock?(): number;
}
export interface Receipt {
  status: "open" | "sent" | "queued" | "answered" | "refused";
  /** Why it was refused. */
  reason: Status | null;
  /** The reason as a sentence, if it was refused. */
  message?: string;
  task: string;
  round: number | null;
  /** What the answer costs, and what was spent on its purpose with it; decimal text. */
  epsilon?: string | null;
  spent?: string;
  cap: string | null;
  /** The id under which the aggregator counts the report. */
  report: string | null;
  /** What left the device: the integers, and in the words and the unit of the task. */
  body: number[] | null;
  text: string | null;
  /** Of an answered round, whether its report still waits for the broker. */
  waiting?: boolean;
}
export interface Statement {
  total: string;
  purposes: { purpose: string; spent: string; cap: string | null }[];
  tasks: { id: string; title: string; purpose: string; digest: string; spent: string; rounds: number; waiting: number; kept: number; dropped: number }[];
}
export declare class Device {
  constructor(options: DeviceOptions);
  readonly connected: boolean;
  /** Why nothing can be stored, or why there is no connection; else empty. */
  readonly trouble: string;
  /** How many reports the broker has not acknowledged. */
  waiting: number;
  /** The tasks that are known now. */
  readonly tasks: Task[];
  /** Check the storage and start to connect. Rejects with a HushError "storage" before anything is asked. */
  open(): Promise<this>;
  /** Store what was acknowledged, and disconnect. Reports that wait are sent after the next start. */
  close(): Promise<void>;
  /** Subscribe to all tasks: `tasks` then has them, and `onChange` is called for each. */
  watchAll(): void;
  /**
   * The task published under an id, as the broker has sent it over this connection; without a connection, as it was when
   * this device admitted it. Rejects with a HushError: "malformed", "task", "epsilon", "forbidden", "no_task", or "network"
   * if there is no connection, or the device is closed.
   */
  task(id: string, options?: { timeout?: number }): Promise<Task>;
  /** What an answer would be, before any value is asked for; an admitted task is pinned. A receipt, as of `answer`. */
  admit(id: string, options?: { timeout?: number; epsilon?: string | null }): Promise<Receipt>;
  /**
   * Answer the open round of a task, at most once. The receipt is durable when this resolves. Waits at most `timeout`
   * seconds for the task and for the broker. Rejects with a TypeError for a value of a wrong type, and with a HushError if
   * the task cannot be had, or the storage fails: then nothing was charged or sent.
   */
  answer(id: string, value: Value, options?: { timeout?: number; epsilon?: string | null }): Promise<Receipt>;
  /**
   * Answer a task from `source`, a function that gives a value or a promise of one, once in each round that is open.
   * Resolves when the device is closed. The source is asked for at most `sourceTimeout` seconds (10); what it does, and how
   * long it takes, decides neither whether nor when the report is sent. A source that has not answered when the device is
   * closed costs nothing, and is asked again. `onReceipt` gets each receipt; an exception in it ends nothing. While the
   * storage fails, nothing is asked or answered, `trouble` says why, and it is tried again.
   */
  answerEachRound(id: string, source: () => Value | Promise<Value>, options?: { sourceTimeout?: number; onReceipt?(receipt: Receipt): void }): Promise<void>;
  /** Wait until the broker has acknowledged everything; whether it has. */
  flush(options?: { timeout?: number }): Promise<boolean>;
  /** What this device has spent, and what it keeps. */
  ledger(): Promise<Statement>;
  /** Admit another task under an id for which nothing was charged. */
  forget(id: string): Promise<void>;
}
