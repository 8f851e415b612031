// hush in a browser: import { Device, openIndexedDB } from "hush-ldp".
export * from "./core.js";
export { Device } from "./device.js";
export { openIndexedDB, persist } from "./indexeddb.js";
export { connect, webSocketTo } from "./mqtt.js";
