-- Every join of the shop: how many pairs of rows it finds, and a sum over values that identify both rows of each pair.
-- Run it in each shard and at the target: the figures at the target are the sums of those of the shards.

SELECT 'addresses of users', COUNT(*), SUM(CRC32(CONCAT(u.email, a.city))) FROM addresses a JOIN users u ON u.id = a.user_id;
SELECT 'categories of categories', COUNT(*), SUM(CRC32(CONCAT(p.name, c.name))) FROM categories c JOIN categories p ON p.id = c.parent_id;
SELECT 'products of categories', COUNT(*), SUM(CRC32(CONCAT(c.name, p.name, p.colour))) FROM products p JOIN categories c ON c.id = p.category_id;
SELECT 'tags of products', COUNT(*), SUM(CRC32(CONCAT(t.name, p.name))) FROM product_tags b JOIN products p ON p.id = b.product_id JOIN tags t ON t.id = b.tag_id;
SELECT 'orders of users', COUNT(*), SUM(CRC32(CONCAT(u.email, o.number))) FROM orders o JOIN users u ON u.id = o.user_id;
SELECT 'orders to addresses', COUNT(*), SUM(CRC32(CONCAT(a.city, o.number))) FROM orders o JOIN addresses a ON a.id = o.address_id;
SELECT 'addresses of their users', COUNT(*) FROM orders o JOIN addresses a ON a.id = o.address_id AND a.user_id = o.user_id;
SELECT 'items of orders', COUNT(*), SUM(CRC32(CONCAT(o.number, i.line, i.total))) FROM items i JOIN orders o ON o.id = i.order_id;
SELECT 'items of products', COUNT(*), SUM(CRC32(CONCAT(p.name, i.line, i.total))) FROM items i JOIN products p ON p.id = i.product_id;
SELECT 'payments of orders', COUNT(*), SUM(CRC32(CONCAT(o.number, p.amount, HEX(p.receipt)))) FROM payments p JOIN orders o ON o.id = p.order_id;
SELECT 'reviews of users', COUNT(*), SUM(CRC32(CONCAT(u.email, r.title, r.body))) FROM reviews r JOIN users u ON u.id = r.user_id;
SELECT 'reviews of products', COUNT(*), SUM(CRC32(CONCAT(p.name, r.title, r.body))) FROM reviews r JOIN products p ON p.id = r.product_id;
SELECT 'visits of users', COUNT(*), SUM(CRC32(CONCAT(u.email, v.page, v.seen))) FROM visits v JOIN users u ON u.id = v.user_id;
SELECT 'moves of products', COUNT(*), SUM(CRC32(CONCAT(p.name, m.day, m.quantity))) FROM moves m JOIN products p ON p.id = m.product_id;
