"""The shop's application: writes to one server until it is stopped with Ctrl-C.

    SHOP_PASSWORD=… python application.py --host 10.0.1.1 --user app shop_1 shop_2 shop_3

The same program writes to the shards and, after the cut-over, to the merged schema. It lets the server generate ids.
Any error of the server ends it with a traceback.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from decimal import Decimal

import pymysql
from pymysql.cursors import Cursor

_BOUGHT_AT_ONCE = 4
_PAUSE = 0.01
_RANDOM = random.SystemRandom()


def _some_id(cursor: Cursor, table: str) -> int:
    cursor.execute(f"SELECT id FROM {table} ORDER BY RAND() LIMIT 1")
    [(row_id,)] = cursor.fetchall()
    return row_id


def _register(cursor: Cursor) -> None:
    email = f"{uuid.uuid4().hex}@example.com"
    cursor.execute("INSERT INTO users (email, name, created) VALUES (%s, 'Zoë', NOW(3))", (email,))
    cursor.execute("INSERT INTO addresses (user_id, city) VALUES (%s, '上海')", (cursor.lastrowid,))


def _buy(cursor: Cursor) -> None:
    cursor.execute("SELECT id, user_id FROM addresses ORDER BY RAND() LIMIT 1")
    [(address, user)] = cursor.fetchall()
    cursor.execute(
        "INSERT INTO orders (user_id, address_id, number, state) VALUES (%s, %s, %s, 'new')",
        (user, _RANDOM.choice([address, None]), uuid.uuid4().hex[:16]),
    )
    order = cursor.lastrowid
    for line in range(1, _RANDOM.randint(1, _BOUGHT_AT_ONCE) + 1):
        cursor.execute(
            "INSERT INTO items (order_id, line, product_id, quantity, price) VALUES (%s, %s, %s, %s, %s)",
            (order, line, _some_id(cursor, "products"), _RANDOM.randint(1, 9), Decimal(_RANDOM.randint(1, 9999)) / 100),
        )


def _pay(cursor: Cursor) -> None:
    order = _some_id(cursor, "orders")
    cursor.execute(
        "INSERT INTO payments (order_id, amount, receipt) "
        "SELECT %s, COALESCE(SUM(total), 0), %s FROM items WHERE order_id = %s",
        (order, uuid.uuid4().bytes, order),
    )
    cursor.execute("UPDATE orders SET state = 'paid' WHERE id = %s", (order,))


def _change(cursor: Cursor) -> None:
    order = _some_id(cursor, "orders")
    cursor.execute("UPDATE items SET quantity = quantity + 1 WHERE order_id = %s", (order,))
    cursor.execute(
        "UPDATE orders SET user_id = %s, address_id = NULL WHERE id = %s", (_some_id(cursor, "users"), order)
    )


def _cancel(cursor: Cursor) -> None:
    # The server deletes its items and payments.
    cursor.execute("DELETE FROM orders WHERE id = %s", (_some_id(cursor, "orders"),))


def _change_address(cursor: Cursor) -> None:
    cursor.execute("SELECT id, user_id FROM addresses ORDER BY RAND() LIMIT 1")
    [(address, user)] = cursor.fetchall()
    cursor.execute("INSERT INTO addresses (user_id, city) VALUES (%s, '北京')", (user,))
    # The server sets the address of its orders to NULL.
    cursor.execute("DELETE FROM addresses WHERE id = %s", (address,))


def _sort(cursor: Cursor) -> None:
    parent = _some_id(cursor, "categories")
    cursor.execute("INSERT INTO categories (parent_id, name) VALUES (%s, %s)", (parent, uuid.uuid4().hex[:8]))
    category = cursor.lastrowid
    cursor.execute("UPDATE products SET category_id = %s WHERE id = %s", (category, _some_id(cursor, "products")))


def _produce(cursor: Cursor) -> None:
    attributes = json.dumps({"colour": _RANDOM.choice(["schwarz", "weiß"]), "sizes": [_RANDOM.random(), None, "😀"]})
    cursor.execute(
        "INSERT INTO products (category_id, name, price, attributes) VALUES (%s, %s, 9.99, %s)",
        (_some_id(cursor, "categories"), uuid.uuid4().hex, attributes),
    )
    cursor.execute("UPDATE products SET attributes = %s WHERE id = %s", (attributes, _some_id(cursor, "products")))


def _tag(cursor: Cursor) -> None:
    product = _some_id(cursor, "products")
    cursor.execute("DELETE FROM product_tags WHERE product_id = %s", (product,))
    cursor.execute("INSERT INTO product_tags SELECT %s, id FROM tags WHERE id %% 2 = %s", (product, product % 2))


def _review(cursor: Cursor) -> None:
    cursor.execute(
        "INSERT INTO reviews (user_id, product_id, title, body) VALUES (%s, %s, 'déçu', '太小了')",
        (_some_id(cursor, "users"), _some_id(cursor, "products")),
    )
    cursor.execute("UPDATE reviews SET body = CONCAT(body, '。') WHERE id = %s", (_some_id(cursor, "reviews"),))


def _visit(cursor: Cursor) -> None:
    user = _some_id(cursor, "users")
    cursor.execute("INSERT INTO visits VALUES (%s, '/basket', NOW(3)), (%s, '/', '2026-01-01')", (user, user))
    cursor.execute("DELETE FROM visits WHERE user_id = %s AND page = '/' LIMIT 1", (_some_id(cursor, "users"),))


def _move(cursor: Cursor) -> None:
    product = _some_id(cursor, "products")
    cursor.execute("INSERT INTO moves (day, product_id, quantity) VALUES (CURRENT_DATE, %s, -1)", (product,))
    cursor.execute("UPDATE moves SET quantity = quantity + 1 WHERE product_id = %s", (product,))


_ACTIONS: Sequence[Callable[[Cursor], None]] = (
    *(_register, _buy, _buy, _pay, _change, _cancel, _change_address, _sort),
    *(_produce, _tag, _review, _visit, _move),
)


def main() -> None:
    """Run transactions until SIGINT or SIGTERM; the one that runs then ends as a whole."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, default=3306)
    parser.add_argument("--user", required=True)
    parser.add_argument("schemas", nargs="+")
    options = parser.parse_args()

    is_stopped = False

    def stop(*_: object) -> None:
        nonlocal is_stopped
        is_stopped = True

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    connection = pymysql.connect(
        host=options.host, port=options.port, user=options.user, password=os.environ.get("SHOP_PASSWORD", "")
    )
    count = 0
    with closing(connection), connection.cursor() as cursor:
        while not is_stopped:
            cursor.execute(f"USE `{_RANDOM.choice(options.schemas)}`")
            _RANDOM.choice(_ACTIONS)(cursor)
            connection.commit()
            count += 1
            time.sleep(_PAUSE)
    print(f"{count} transactions")


if __name__ == "__main__":
    main()
