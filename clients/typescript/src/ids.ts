/** Ids the client makes, so that a repeated call repeats its events. */

/**
 * A new id in the form of a version 7 UUID (RFC 9562): 48 bits of Unix time in ms, then random
 * bits.
 */
export function newId(): string {
  const time = Date.now().toString(16).padStart(12, "0");
  // Not randomUUID: a page without TLS does not have it.
  const bytes = crypto.getRandomValues(new Uint8Array(10));
  const random = Array.from(bytes, (byte) => (byte + 256).toString(16).slice(1)).join("");
  const variant = "89ab"[bytes[9]! % 4];
  const digits = `${time}7${random.slice(0, 3)}${variant}${random.slice(3, 18)}`;
  return digits.replace(/(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/**
 * A copy of the event or message, with a new id if it has none. A value that is not an object is
 * returned unchanged.
 */
export function withId<T extends { id?: unknown }>(item: T): T {
  return Object(item) === item && item.id == null ? { ...item, id: newId() } : item;
}
