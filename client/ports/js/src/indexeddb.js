// A storage in the browser: IndexedDB. A transaction that writes runs alone, in all tabs of an origin: of two tabs that
// answer the same round, the second sees the first one's record. Nothing is sent before it is on the disk.
import { HushError } from "./numbers.js";

const STORE = "records";
const failed = (error) => new HushError("storage",
  `this browser does not let the page store anything (${error?.name ?? "blocked"}); free space, allow it to store data, or leave the private window`);

/**
 * Open the storage. Rejects with a HushError "storage" where the browser blocks it: then ask nothing.
 * `name` separates devices of one origin.
 */
export async function openIndexedDB(name = "hush") {
  const database = await new Promise((resolve, reject) => {
    let request;
    try {
      request = indexedDB.open(name, 1);
    } catch (error) {
      return reject(failed(error));
    }
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(failed(request.error));
    request.onblocked = () => reject(failed());
  });
  database.onversionchange = () => database.close();
  const storage = {
    update(step) {
      return new Promise((resolve, reject) => {
        let reason = null, transaction;
        try {
          transaction = database.transaction(STORE, "readwrite", { durability: "strict" });
        } catch (error) {
          return reject(failed(error));
        }
        const records = transaction.objectStore(STORE), names = records.getAllKeys(), values = records.getAll();
        const abort = (error) => {
          reason = error;
          transaction.abort();
        };
        values.onsuccess = () => {
          let changes;
          try {
            changes = [...step(new Map(names.result.map((key, i) => [key, values.result[i]])))];
          } catch (error) {
            return abort(error);
          }
          try {
            for (const [record, bytes] of changes) void (bytes ? records.put(bytes, record) : records.delete(record));
          } catch (error) {
            abort(failed(error));
          }
        };
        transaction.oncomplete = () => resolve();
        transaction.onabort = () => reject(reason ?? failed(transaction.error));
      });
    },
    async close() {
      database.close();
    },
  };
  await storage.update(() => [["probe", new Uint8Array(1)]]); // a browser may open a database that it does not let us write
  await storage.update(() => [["probe", null]]);
  return storage;
}

/** Ask the browser never to delete the storage when space is short; whether it promises so. Only over TLS. */
export async function persist() {
  return (await globalThis.navigator?.storage?.persist?.()) === true;
}
