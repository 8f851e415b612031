import { Device as AnyDevice, type DeviceOptions, type OpenSocket, type Storage } from "./index.js";
export * from "./index.js";

/** Options of node:tls, for example `ca`. */
export interface TlsOptions { readonly [name: string]: unknown }
export declare class Device extends AnyDevice {
  constructor(options: DeviceOptions & { tls?: TlsOptions });
}
/** A socket to mqtt://, mqtts://, ws:// or wss://. */
export declare function socketTo(url: string, tls?: TlsOptions): OpenSocket;
/** Rejects with a HushError "storage" if another process uses the directory, others may write to it, or it cannot be written. */
export declare function openDirectory(directory: string): Promise<Storage>;
